"""Replaces personal data in a tool's result by its kind. Pure."""

from __future__ import annotations

import re

_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?![\w-])")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
_CARD = re.compile(r"(?<![\d-])\d(?:[ -]?\d){12,18}(?![\d-])")
# Digit by digit, so that a number matches in one way only: no text makes the search slow.
_PHONE = re.compile(r"(?<![\w+])\+\d(?:[ ()./-]{0,2}\d){2,32}(?!\w)")


def without_personal_data(text: str) -> str:
    """``text`` with mail addresses, bank and card numbers (by their check digits) and
    international telephone numbers replaced by their kind."""
    text = _EMAIL.sub("[mail address]", text)
    text = _IBAN.sub(lambda found: "[bank account]" if _is_iban(found[0]) else found[0], text)
    text = _CARD.sub(lambda found: "[card number]" if _is_card(found[0]) else found[0], text)
    return _PHONE.sub(
        lambda found: "[telephone]" if 7 <= _digits(found[0]) <= 15 else found[0], text
    )


def _digits(text: str) -> int:
    return sum(character.isdigit() for character in text)


def _is_iban(text: str) -> bool:
    bare = text.replace(" ", "")
    if not 15 <= len(bare) <= 34:
        return False
    return int("".join(str(int(c, 36)) for c in bare[4:] + bare[:4])) % 97 == 1


def _is_card(text: str) -> bool:
    digits = [int(c) for c in reversed(text) if c.isdigit()]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + doubled) % 10 == 0
