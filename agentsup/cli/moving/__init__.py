"""Moving here: reads the homes of other products, and brings what has a place here."""
