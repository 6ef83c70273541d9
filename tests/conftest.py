"""What all tests share: property tests draw the same examples on every run and are never failed by the clock."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "lowtide", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("lowtide")
