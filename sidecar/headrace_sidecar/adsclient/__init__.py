"""Delta-ADS client of the sidecars: a sans-IO engine and its asyncio adapter."""
