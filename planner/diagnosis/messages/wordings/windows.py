"""Windows' commit limit (RAM and page file), in its languages and codes, and WSL's virtual machine.

The codes are winerror.h's, which are the same in every language.
"""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Pattern

_WINDOWS = (
    Pattern(
        kind="windows_1455",
        needle="1455",
        regex=r"(?:\bos error|\bWin(?:32)?Error|\berror(?: code| number| #)?|\berrno|\berreur|\bFehler|\berro"
        r"|\bошибка|错误|エラー|오류|\bkod)"
        r"[\s:=#(]{0,4}1455\b|\(1455\)|\[1455\]|\b0x800705AF\b",
        failure="host_memory",
        second="limit_not_capacity",
        confidence="high",
        why="Windows error 1455, the commit limit (RAM and page file): loading asks for address space that Windows "
        "must be "
        "able to back",
        advise=("page_file", "load_with_less"),
    ),
    Pattern(
        kind="windows_0x800705af",
        needle="800705af",
        regex=r"\b0x800705AF\b",
        failure="host_memory",
        second="limit_not_capacity",
        confidence="high",
        why="Windows error 1455, the commit limit (RAM and page file)",
        advise=("page_file", "load_with_less"),
    ),
    Pattern(
        kind="windows_resources",
        reach=200,
        needle=(
            "not enough memory resources are available",
            "winerror 8]",
            "os error 8)",
            "os error 1450",
            "winerror 1453",
            "os error 1453",
            "winerror 1450",
        ),
        regex=r"\bNot enough memory resources are available\b|\[WinError 8\]|\(os error 8\)|\b(?:os error|WinError) "
        r"145[03]\b",
        failure="host_memory",
        second="limit_not_capacity",
        confidence="high",
        why="Windows refused memory to the process: its commit limit (RAM and page file) is reached",
        advise=("page_file", "load_with_less"),
    ),
    Pattern(
        kind="windows_commit",
        reach=250,
        needle=("low virtual memory condition", "0xc000012d", "0xc0000017", "3221225495", "3221225773"),
        regex=r"low virtual memory condition|\b0xC000012D\b|\b0xC0000017\b|\b3221225495\b|\b3221225773\b",
        failure="host_memory",
        second="limit_not_capacity",
        confidence="high",
        why="Windows' commit limit (RAM and page file) is reached",
        advise=("page_file", "load_with_less"),
    ),
    Pattern(
        kind="windows_pagefile_words",
        needle=(
            "auslagerungsdatei ist zu klein",
            "fichier de pagination est insuffisant",
            "archivo de paginaci",
            "айл подкачки слишком мал",
            "页面文件太小",
            "頁面檔太小",
            "ページング ファイルが小さすぎ",
            "페이징 파일이 너무 작",
            "arquivo de paginação",
            "file di paging",
        ),
        regex=r"Auslagerungsdatei ist zu klein|fichier de pagination est insuffisant|archivo de paginaci.n es "
        r"demasiado peque"
        r"|Файл подкачки слишком мал|页面文件太小|頁面檔太小|ページング ファイルが小さすぎ|페이징 파일이 너무 작"
        r"|arquivo de pagina..o . muito pequeno|file di paging . (?:troppo piccolo|insufficiente)",
        failure="host_memory",
        second="limit_not_capacity",
        confidence="high",
        why="Windows' commit limit (RAM and page file): loading asks for address space that it must be able to back",
        advise=("page_file", "load_with_less"),
    ),
    Pattern(
        kind="windows_bad_allocation",
        needle="bad allocation",
        regex=r"\bbad allocation\b",
        failure="host_memory",
        confidence="medium",
        why="C++'s bad_alloc as Windows words it: RAM or the commit limit",
        advise=("page_file", "load_with_less"),
    ),
)

_WSL = (
    Pattern(
        kind="wsl_memory",
        reach=200,
        needle=("wsl/service/", "wsl/callmsi", "instance has terminated"),
        regex=r"Wsl/[\w/]{1,60}/0x8007000[eE]|The Windows Subsystem for Linux instance has terminated"
        r"|Wsl/Service/(?:E_UNEXPECTED|0x8000ffff)",
        failure="host_memory",
        second="undecided",
        confidence="medium",
        why="WSL's virtual machine ended or could not start: mostly for want of RAM",
        would_change="a memory limit in .wslconfig well above what the program needs",
        advise=("wsl_memory", "load_with_less"),
    ),
)

PATTERNS = (*_WINDOWS, *_WSL)
