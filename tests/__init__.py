"""The tests. This runs before all of them, and before what they import."""

import pytest

# Its asserts should tell what they saw, as those of a test module do.
pytest.register_assert_rewrite("django_claims.test.contract")
