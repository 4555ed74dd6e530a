"""Why a request goes where it goes: what the gateway decides, told step by step."""
