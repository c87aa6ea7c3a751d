"""What every backend must do, as tests that any backend can inherit."""

from django_claims.test.contract.acquiring import AcquireContract, FenceContract
from django_claims.test.contract.forcing import ForceContract
from django_claims.test.contract.handed_over import HandedOverContract
from django_claims.test.contract.handing import HandOverContract
from django_claims.test.contract.naming import NameContract
from django_claims.test.contract.reading import LeaseContract, ListContract
from django_claims.test.contract.releasing import ReleaseContract
from django_claims.test.contract.renewing import RenewContract
from django_claims.test.contract.stopping import KeptStoppedContract, StopContract
from django_claims.test.contract.stores import StoreContract
from django_claims.test.contract.timing import TTLContract


class BackendContract(
    AcquireContract,
    FenceContract,
    RenewContract,
    ReleaseContract,
    LeaseContract,
    ListContract,
    ForceContract,
    StopContract,
    KeptStoppedContract,
    StoreContract,
    HandOverContract,
    HandedOverContract,
    NameContract,
    TTLContract,
):
    """
    What every backend must do. Inherit it; add tests, never skip one.

    A subclass sets `self.backend` before each test: a backend whose store has no claim and no
    stop flag yet. With pytest that is a fixture::

        class TestMyBackend(BackendContract):
            @pytest.fixture(autouse=True)
            def _backend(self):
                settings = AliasSettings(alias="default", backend="my.Backend", options={...})
                self.backend = MyBackend(settings)
                yield
                self.backend.close()

    What else it may override:

    - `may_end_late`, if the store rounds a TTL up: the seconds by which a lease may outlive it;
    - `another()`, if a second backend object of the same store is made in some other way;
    - `until()`, if the store's clock can be moved and nobody has to wait for it; `by_real_time`
      is then False.
    """
