"""Personal data in what a tool brings back: rules that name it instead of showing it. Pure."""

from __future__ import annotations

import re

_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?![\w-])")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
_CARD = re.compile(r"(?<![\d-])\d(?:[ -]?\d){12,18}(?![\d-])")
# Digit by digit, so that there is one way only to read a number: no text makes the search slow.
_PHONE = re.compile(r"(?<![\w+])\+\d(?:[ ()./-]{0,2}\d){2,32}(?!\w)")


def without_personal_data(text: str) -> str:
    """``text`` with mail addresses, bank and card numbers (by their check digits) and
    international telephone numbers named instead of shown."""
    text = _EMAIL.sub("[mail address]", text)
    text = _IBAN.sub(lambda found: _if(_is_iban(found[0]), "[bank account]", found[0]), text)
    text = _CARD.sub(lambda found: _if(_is_card(found[0]), "[card number]", found[0]), text)
    return _PHONE.sub(
        lambda found: _if(7 <= _digits(found[0]) <= 15, "[telephone]", found[0]), text
    )


def _if(is_so: bool, then: str, otherwise: str) -> str:
    return then if is_so else otherwise


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
