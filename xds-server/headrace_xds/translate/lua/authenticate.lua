-- Who calls: a key becomes a tenant and its tier, and goes no further. A request leaves this filter
-- with a tenant, with the tenant "-" because its path needs none, or not at all.
--
-- Requests that the connection manager should refuse, and does not, end here as well: it lets an
-- upgrade pass as long as no route is chosen, and takes the hosts of two headers for one name.
local identities = {}
for hash, tenant, tier in IDENTITIES:gmatch("(%x+) (%S+) (%S+)\n") do
  identities[hash] = { tenant = tenant, tier = tier }
end

-- Identities of keys that were seen and are right; no larger than the table above.
local known = {}

local open_calls = {}
for path in OPEN_CALLS:gmatch("(%S+)\n") do
  open_calls[path] = true
end

local function is_open(method, path, grpc)
  if grpc then
    return open_calls[path] == true
  end
  if method ~= "GET" and method ~= "HEAD" then
    return false
  end
  return path == "/v2/health/live" or path == "/v2/health/ready"
    or path:find("^/v2/models/[^/]+/ready$") ~= nil
    or path:find("^/v2/models/[^/]+/versions/%d+/ready$") ~= nil
end

-- The one key that a request carries; nil when there is none or more than one.
local function key_of(headers)
  local plain, bearer = headers:getNumValues(KEY_HEADER), headers:getNumValues("authorization")
  if plain + bearer ~= 1 then
    return nil
  end
  if plain == 1 then
    return headers:get(KEY_HEADER)
  end
  local scheme, token = headers:get("authorization"):match("^(%a+) +([^ ,]+)$")
  if scheme == nil or scheme:lower() ~= "bearer" then
    return nil
  end
  return token
end

local function identify(headers)
  local key = key_of(headers)
  if key == nil or key == "" or #key > KEY_LENGTH then
    return nil
  end
  local identity = known[key]
  if identity == nil then
    identity = identities[sha256(key)]
    if identity ~= nil then
      known[key] = identity
    end
  end
  return identity
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local grpc = is_grpc(headers)
  if headers:get("upgrade") ~= nil then
    refuse(handle, grpc, NO_UPGRADE)
    return
  end
  if grpc and headers:get(":method") ~= "POST" then
    refuse(handle, grpc, NO_CALL)
    return
  end
  if headers:getNumValues(":authority") ~= 1 or headers:get(":authority"):find(",", 1, true) then
    refuse(handle, grpc, TWO_HOSTS)
    return
  end
  local path = headers:get(":path"):match("^[^?]*")
  if is_open(headers:get(":method"), path, grpc) then
    headers:replace(TENANT_HEADER, "-")
  else
    local identity = identify(headers)
    if identity == nil then
      refuse(handle, grpc, INVALID_API_KEY)
      return
    end
    headers:replace(TENANT_HEADER, identity.tenant)
    headers:replace(TIER_HEADER, identity.tier)
  end
  headers:remove(KEY_HEADER)
  headers:remove("authorization")
end
