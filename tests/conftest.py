"""Shared by all tests: how Hypothesis behaves here.

The leak check and virtual time are plugins of the package (`agentsup.testing.leak`,
`agentsup.testing.virtual`), named in pyproject.toml so that they load before any fixture.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("AGENTSUP_HYPOTHESIS", "quick"))
