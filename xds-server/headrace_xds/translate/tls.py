"""TLS at the gateway: what the listener says, and the secrets that it is given over ADS.

The listener names its secrets by what they are for. Which secret of the configuration that is, and
every byte of it, changes without the listener, since changing that would cut streams.
"""

from typing import Final

from envoy_data_plane.envoy.config.core.v3 import DataSource, TransportSocket
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext,
    CommonTlsContext,
    DownstreamTlsContext,
    SdsSecretConfig,
    Secret,
    TlsCertificate,
    TlsParameters,
    TlsParametersTlsProtocol,
)

from headrace import ir, names
from headrace_xds.translate import resources
from headrace_xds.translate.packing import ads, pack
from headrace_xds.translate.resources import Resource, resource

ALPN: Final = ("h2", "http/1.1")


def transport_socket(tls: ir.Tls | None) -> TransportSocket | None:
    """How a listener's connections are secured; None in the clear."""
    if tls is None:
        return None
    context = CommonTlsContext(
        tls_params=TlsParameters(tls_minimum_protocol_version=TlsParametersTlsProtocol.TLSv1_2),
        tls_certificate_sds_secret_configs=[_given(names.GATEWAY_CERTIFICATE)],
        alpn_protocols=list(ALPN),
    )
    if tls.client_ca is not None:
        context.validation_context_sds_secret_config = _given(names.CLIENT_CA)
    downstream = DownstreamTlsContext(
        common_tls_context=context,
        require_client_certificate=True if tls.client_ca is not None else None,
    )
    return TransportSocket(name="envoy.transport_sockets.tls", typed_config=pack(downstream))


def certificate(chain: bytes, key: bytes) -> Resource:
    """A gateway's certificate chain and its key, both PEM."""
    pair = TlsCertificate(
        certificate_chain=DataSource(inline_bytes=chain), private_key=DataSource(inline_bytes=key)
    )
    return _secret(Secret(name=names.GATEWAY_CERTIFICATE, tls_certificate=pair))


def client_ca(certificates: bytes) -> Resource:
    """Certificates that vouch for callers, as PEM."""
    trusted = CertificateValidationContext(trusted_ca=DataSource(inline_bytes=certificates))
    return _secret(Secret(name=names.CLIENT_CA, validation_context=trusted))


def _secret(made: Secret) -> Resource:
    return resource(resources.SECRET, made.name, bytes(made))


def _given(name: str) -> SdsSecretConfig:
    return SdsSecretConfig(name=name, sds_config=ads())
