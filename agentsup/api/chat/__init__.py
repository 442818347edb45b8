"""The chat socket ``/ws``: its frames, and how texts of people are accepted."""
