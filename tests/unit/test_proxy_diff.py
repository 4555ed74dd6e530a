"""What a proxy is served against what its Envoy says that it has."""

from headrace_xds.cli.live import Live, parse
from headrace_xds.cli.proxy_diff import differences

PAGE = {
    "configs": [
        {
            "dynamic_active_clusters": [{"version_info": "1", "cluster": {"name": "a"}}],
            "dynamic_warming_clusters": [{"version_info": "2", "cluster": {"name": "a"}}],
        },
        {
            "dynamic_listeners": [
                {
                    "name": "l",
                    "active_state": {"version_info": "1", "listener": {"name": "l"}},
                    "draining_state": {"version_info": "0", "listener": {"name": "l"}},
                }
            ]
        },
        {"dynamic_endpoint_configs": [{"endpoint_config": {"cluster_name": "a"}}]},
        {"other": []},
    ]
}


def test_a_page_of_envoy_is_read_with_states_and_versions() -> None:
    assert [found[:4] for found in parse(PAGE)] == [
        ("CDS", "a", "1", "active"),
        ("CDS", "a", "2", "warming"),
        ("LDS", "l", "1", "active"),
        ("LDS", "l", "0", "draining"),
        ("EDS", "a", None, "active"),
    ]


def test_versions_are_compared_where_envoy_tells_them_and_names_elsewhere() -> None:
    sent = [
        {"type": "CDS", "name": "a", "version": "2"},
        {"type": "EDS", "name": "a", "version": "7"},
        {"type": "EDS", "name": "b", "version": "7"},
        {"type": "SDS", "name": "secret", "version": "1"},
    ]
    lives = [*parse(PAGE), Live("RDS", "old", "3", "active", {})]
    assert list(differences(sent, lives)) == [
        {"type": "CDS", "name": "a", "sent": "2", "live": "1"},
        {"type": "EDS", "name": "b", "sent": "7", "live": None},
        {"type": "LDS", "name": "l", "sent": None, "live": "1"},
        {"type": "RDS", "name": "old", "sent": None, "live": "3"},
    ]
