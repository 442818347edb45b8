"""What thinks: the scripted engine, the language model engine, and the guard around every engine."""
