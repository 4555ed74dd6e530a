"""The fleet's bookkeeping against one that keeps everything and compares it all every time."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace_xds.fleet import Fleet, SyncState
from headrace_xds.translate.resources import CLUSTER, ENDPOINTS, resource

GROUPS = ("gateway/eu", "gateway/us")
PROXIES = st.sampled_from(["gateway/eu/1", "gateway/eu/2", "gateway/us/1"])
TYPES = st.sampled_from([CLUSTER, ENDPOINTS])
VERSIONS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"]))
ANSWERS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", ""]), min_size=1)


class Bookkeeping(RuleBasedStateMachine):
    """Proxies that connect, say what they hold, and are published to."""

    @initialize()
    def begin(self) -> None:
        self.fleet = Fleet()
        self.published: dict[tuple[str, str], dict[str, str]] = {}
        self.held: dict[tuple[str, str], dict[str, str]] = {}
        self.groups: dict[str, str] = {}

    @rule(group=st.sampled_from(GROUPS), type_url=TYPES, versions=VERSIONS)
    def publish(self, group: str, type_url: str, versions: dict[str, str]) -> None:
        made = {n: resource(type_url, n, v.encode()) for n, v in versions.items()}
        self.fleet.published(group, type_url, made)
        self.published[group, type_url] = {n: r.version for n, r in made.items()}

    @rule(proxy=PROXIES, group=st.sampled_from(GROUPS))
    def connect(self, proxy: str, group: str) -> None:
        self.fleet.connected(1, proxy, group, "1.40", at_s=0)
        self.groups[proxy] = group

    @rule(proxy=PROXIES)
    def disconnect(self, proxy: str) -> None:
        self.fleet.disconnected(1, proxy)
        self.groups.pop(proxy, None)
        self.held = {key: held for key, held in self.held.items() if key[0] != proxy}

    @rule(group=st.sampled_from(GROUPS))
    def retract(self, group: str) -> None:
        self.fleet.retract(group)
        self.published = {key: v for key, v in self.published.items() if key[0] != group}

    @rule(proxy=PROXIES, type_url=TYPES, answers=ANSWERS)
    def acknowledge(self, proxy: str, type_url: str, answers: dict[str, str]) -> None:
        versions = {
            n: resource(type_url, n, v.encode()).version if v else v for n, v in answers.items()
        }
        self.fleet.acked(proxy, type_url, versions, at_s=1)
        if proxy in self.groups:
            held = self.held.setdefault((proxy, type_url), {})
            held.update(versions)
            for name in [name for name, version in held.items() if not version]:
                del held[name]

    @rule(proxy=PROXIES, type_url=TYPES)
    def acknowledge_all(self, proxy: str, type_url: str) -> None:
        versions = dict(self.published.get((self.groups.get(proxy, ""), type_url), {}))
        self.fleet.claimed(proxy, type_url, versions)
        if proxy in self.groups:
            self.held.setdefault((proxy, type_url), {}).update(versions)

    @invariant()
    def what_is_pending_is_what_differs(self) -> None:
        for name, group in self.groups.items():
            proxy = self.fleet.proxies[name]
            assert proxy.group == group
            for type_url in (CLUSTER, ENDPOINTS):
                wanted = self.published.get((group, type_url), {})
                held = self.held.get((name, type_url), {})
                pending = {n for n, version in wanted.items() if held.get(n) != version}
                if type_url == CLUSTER:
                    pending |= held.keys() - wanted.keys()
                status = self.fleet.status(proxy, type_url)
                assert set(status.pending) == pending
                assert (status.state is SyncState.SYNCED) == (not pending)
            assert self.fleet.in_effect(proxy) == all(
                not self.fleet.status(proxy, type_url).pending
                for type_url in self.fleet.types(group)
            )


TestBookkeeping = Bookkeeping.TestCase
TestBookkeeping.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
