"""What a name stands for when no file of that name is there: a bundled config, a renamed maker, an export by rule.

bundled.py        which configs are bundled, and finding one by its name
spelling.py       one model, several spellings: renamed makers, copies, Ollama tags, the nearest name
exports.py        an export's name -> base model, storage, what is kept, cache (exports.csv: one rule a row)
storage.py        that storage as the quantization_config such an export states
"""
