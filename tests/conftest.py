"""For all tests: how long an example takes is not what they judge."""

from hypothesis import settings

settings.register_profile("vfsl", deadline=None)
settings.load_profile("vfsl")
