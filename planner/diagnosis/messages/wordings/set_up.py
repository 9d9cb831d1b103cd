"""Failures of what a program was given: files, access, versions, types, shapes, options, ports. No memory in them."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import no_memory

_FILES = (
    no_memory(
        "access",
        ("gatedrepoerror", "gated repo", "401 client error", "403 client error", "you must have access to it"),
        r"\bGatedRepoError\b|Cannot access gated repo|\b40[13] Client Error"
        r"|You must have access to it and be authenticated",
        "the repository is gated or private, and the token is missing or has no access to it",
        "repository_access",
    ),
    no_memory(
        "no_repository",
        ("repositorynotfounderror", "404 client error", "is not a local folder and is not a valid model identifier"),
        r"\bRepositoryNotFoundError\b|\b404 Client Error|is not a local folder and is not a valid model identifier",
        "there is no such repository or file, or it is private and no token was sent",
        "repository_access",
    ),
    no_memory(
        "missing_file",
        (
            "no such file or directory",
            "does not appear to have a file named",
            "can't load the configuration of",
            "error no file named",
            "failed to open gguf file",
        ),
        r"\[Errno 2\] No such file or directory|does not appear to have a file named|Can't load the configuration of"
        r"|Error no file named|failed to open GGUF file|(?:cannot|can't|could not|failed to) (?:open|stat|access|load)"
        r"[^\n]{0,120}: No such file or directory",
        "a file or folder that was named is not there",
        "right_path",
    ),
    no_memory(
        "damaged_file",
        (
            "invalid magic character",
            "headertoolarge",
            "invalidheaderdeserialization",
            "metadataincompletebuffer",
            "failed finding central directory",
            "tensor data is not within the file bounds",
            "unexpected eof, expected",
        ),
        r"invalid magic characters?|\b(?:HeaderTooLarge|InvalidHeaderDeserialization|MetadataIncompleteBuffer)\b"
        r"|failed finding central directory|tensor data is not within the file bounds|unexpected EOF, expected \d",
        "a file of weights is cut, damaged or of another format (often an LFS pointer)",
        "fetch_again",
    ),
    no_memory(
        "permission",
        ("[errno 13]", "permission denied:"),
        r"\[Errno 13\] Permission denied|Permission denied: ?'",
        "the process may not read or write that path",
        "right_path",
    ),
    no_memory(
        "network",
        ("max retries exceeded with url", "name or service not known", "temporary failure in name resolution"),
        r"Max retries exceeded with url|Name or service not known|Temporary failure in name resolution",
        "a download or connection failed",
        "network_or_offline",
    ),
    no_memory(
        "open_files",
        ("[errno 24]", "too many open files"),
        r"\[Errno 24\]|\bToo many open files\b",
        "the limit of open files was reached (ulimit -n)",
        "more_open_files",
        failure="limit_not_capacity",
    ),
)
_PORTS = (
    no_memory(
        "port",
        ("address already in use", "eaddrinuse"),
        r"\baddress already in use\b|\bEADDRINUSE\b",
        "another process listens on that port, often an earlier start of the same server",
        "free_port",
    ),
)
_VERSIONS = (
    no_memory(
        "missing_module",
        (
            "no module named",
            "cannot import name",
            "flashattention2 has been toggled on",
            "flash attention 2 is not available",
            "requires the following packages",
        ),
        r"\bNo module named '|\bcannot import name '|FlashAttention2 has been toggled on, but it cannot be used"
        r"|Flash Attention 2 is not available|requires the following packages that were not found",
        "a Python package is missing or of another version than the program expects",
        "install_package",
    ),
    no_memory(
        "unknown_model",
        (
            "does not recognize this architecture",
            "are not supported for now",
            "unknown model architecture",
            "unsupported model architecture",
            "has no vllm implementation",
        ),
        r"does not recognize this architecture|Model architectures? \[[^\]]{0,120}\] (?:are not supported|failed)"
        r"|unknown model architecture|[Uu]nsupported model architecture|has no vLLM implementation",
        "this release does not know the model's architecture",
        "newer_release",
    ),
    no_memory(
        "remote_code",
        "trust_remote_code=true",
        r"set the option `?trust_remote_code=True`? to remove this error",
        "the repository brings its own code, which is run only when allowed",
        "allow_remote_code",
    ),
    no_memory(
        "card_unsupported",
        (
            "is not compatible with the current pytorch installation",
            "only supports ampere gpus or newer",
            "bfloat16 is only supported on gpus",
            "is not supported on this gpu",
            "the quantization method",
            "peer access is not supported",
        ),
        r"is not compatible with the current PyTorch installation|only supports Ampere GPUs or newer"
        r"|Bfloat16 is only supported on GPUs with compute capability|is not supported on this GPU"
        r"|The quantization method [\w-]{1,40} is not supported for the current GPU|peer access is not supported",
        "this card, or this build for it, has not what the type or kernel asks for",
        "supported_type",
    ),
    no_memory(
        "mps_operator",
        "not currently implemented for the mps device",
        r"is not currently implemented for the MPS device",
        "this operator is not written for Metal in this release of torch",
        "mps_fallback",
    ),
    no_memory(
        "container_gpu",
        ("could not select device driver", "unknown or invalid runtime name: nvidia", "nvidia-container-cli: init"),
        r"could not select device driver|unknown or invalid runtime name: nvidia|nvidia-container-cli: initialization",
        "the container engine has no GPU runtime: NVIDIA's container toolkit is missing or not configured",
        "container_toolkit",
    ),
)
_TYPES = (
    no_memory(
        "types",
        (
            "to have the same dtype",
            "expected scalar type",
            "of the following scalar types",
            "should be the same",
            "not implemented for 'half'",
        ),
        r"expected (?:mat1 and mat2|m1 and m2) to have the same dtype|[Ee]xpected scalar type \w{1,20} but found"
        r"|to have one of the following scalar types|[Ii]nput type \([\w.]{1,60}\) and (?:weight|bias) type "
        r"\([\w.]{1,60}\) should be the same|not implemented for 'Half'",
        "two tensors of one operation have different types",
        "same_types",
    ),
    no_memory(
        "shapes",
        (
            "shapes cannot be multiplied",
            "size mismatch for",
            "must match the size of tensor",
            "sizes of tensors must match",
            "is invalid for input of size",
        ),
        r"shapes cannot be multiplied \(|size mismatch for [\w.]{1,120}: copying a param|The size of tensor a "
        r"\(\d{1,12}\) must match the size of tensor|Sizes of tensors must match except"
        r"|shape '\[[^\]]{0,80}\]' is invalid for input",
        "the shapes of two tensors do not match: another checkpoint, config or input than the code expects",
        "same_shapes",
    ),
    no_memory(
        "not_a_number",
        ("contains either `inf`, `nan`", "nansexception", "loss is nan", "gradient contains nan"),
        r"contains either `inf`, `nan`|\bNansException\b|\bloss is nan\b|gradient contains nan",
        "a value became infinite or not a number: precision or learning rate, not memory",
        "more_precision",
    ),
    no_memory(
        "no_gradient",
        ("does not require grad and does not have a grad_fn", "does not require a grad", "modified by an inplace"),
        r"does not require (?:a )?grad and does not have a grad_fn|modified by an inplace operation",
        "the graph of gradients is broken: nothing trainable, or a tensor was overwritten",
        "gradient_inputs",
    ),
)
_OPTIONS = (
    no_memory(
        "options",
        (
            "unrecognized arguments",
            "unrecognised arguments",
            "unexpected argument",
            "invalid argument:",
            "no such option",
            "the following arguments are required",
            "got an unexpected keyword argument",
            "error: unknown argument",
        ),
        r"error: unrecogni[sz]ed arguments|error: unexpected argument|error: invalid argument:|No such option"
        r"|error: the following arguments are required|got an unexpected keyword argument|error: unknown argument",
        "the program of this release does not know an option that it was given",
        "right_option",
    ),
    no_memory(
        "divisible",
        ("must be divisible by", "is not divisible by"),
        r"(?:attention heads|kv heads|hidden size|vocab(?:ulary)? size|world size|input size|output size|weight)"
        r"[^\n]{0,80}(?:must be|is not) divisible by",
        "a size of the model does not divide by the number of GPUs it is split over",
        "divisor",
    ),
    no_memory(
        "too_many_items",
        ("may be provided in one request", "exceeds the capacity of block_manager", "exceed context size"),
        r"At most \d{1,6} \w{1,20}(?:\(s\))? may be provided in one request|exceeds the capacity of block_manager"
        r"|exceeds? (?:the available )?context size",
        "the request is larger than this server was set to take: a rule, not the card's memory",
        "allowed_length",
    ),
    no_memory(
        "chat_template",
        ("chat template is no longer allowed", "chat_template is not set"),
        r"chat template is no longer allowed|chat_template is not set",
        "the tokenizer has no chat template",
        "give_template",
    ),
)

SET_UP = (*_FILES, *_PORTS, *_VERSIONS, *_TYPES, *_OPTIONS)
