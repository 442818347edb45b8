"""The JSON that the API takes and returns: pydantic models, and the functions that build documents."""
