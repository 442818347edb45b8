"""Files that a person takes along: backups of a whole home, exported agents and chats."""
