"""The JSON contract: a pydantic model for what each command prints with --format json. Imported only when asked for."""
