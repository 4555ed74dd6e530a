-- What is asked for: the model and the pinned version, wherever the protocol puts them, become
-- headers that routes match on.

-- Number at a position of a window of bytes, and the position after it; nil when it is cut off.
local function varint(bytes, position)
  local number, scale = 0, 1
  for i = position, position + 9 do
    local byte = bytes:byte(i)
    if byte == nil then
      return nil
    end
    number = number + (byte % 128) * scale
    if byte < 128 then
      return number, i + 1
    end
    scale = scale * 128
  end
  return nil
end

-- Fields 1 and 2 of a gRPC message: the model's name and version. The whole message is walked,
-- since of a repeated field the last one counts, but only tags and lengths are copied. Returns
-- nil and a refusal for anything that is not one uncompressed well-formed message.
local function read_message(body)
  local total = body:length()
  if total < 5 then
    return nil, INVALID_MESSAGE
  end
  local flag, a, b, c, d = body:getBytes(0, 5):byte(1, 5)
  if flag ~= 0 then
    return nil, ENCODING_NOT_ACCEPTED
  end
  if a * 0x1000000 + b * 0x10000 + c * 0x100 + d ~= total - 5 then
    return nil, INVALID_MESSAGE
  end
  local found = { "", "" }
  local at = 5
  for _ = 1, FIELDS do
    if at == total then
      return found
    end
    local window = body:getBytes(at, math.min(20, total - at))
    local key, after = varint(window, 1)
    if key == nil or key < 8 or key >= 0x100000000 then
      return nil, INVALID_MESSAGE
    end
    local kind = key % 8
    local number = (key - kind) / 8
    local size
    if kind == 0 then
      local _, stop = varint(window, after)
      size = stop and stop - after
    elseif kind == 1 then
      size = 8
    elseif kind == 5 then
      size = 4
    elseif kind == 2 then
      size, after = varint(window, after)
    end
    if size == nil or at + (after - 1) + size > total then
      return nil, INVALID_MESSAGE
    end
    local start = at + (after - 1)
    if kind == 2 and (number == 1 or number == 2) then
      -- One character more than the longest name, so that a longer one is seen to be no name.
      found[number] = size > 0 and body:getBytes(start, math.min(size, NAME_LENGTH + 1)) or ""
    end
    at = start + size
  end
  if at == total then
    return found
  end
  return nil, INVALID_MESSAGE
end

local function is_name(text)
  return #text <= NAME_LENGTH and text:find("^[%w][%w_.-]*$") ~= nil
end

local function ask(handle, model, version, protocol)
  -- Fetched anew: a handle to headers is dead once the filter has waited for a body.
  local headers = handle:headers()
  if version == nil or version == "" then
    version = headers:get(VERSION_HINT) or ""
  end
  -- "?" is no model's name, so it finds no route and the caller hears that the model is unknown.
  if not is_name(model) or (version ~= "" and version:find("^[1-9]%d?%d?%d?%d?%d?$") == nil) then
    headers:replace(MODEL_HEADER, "-")
    headers:replace(SCOPE_HEADER, "?")
  else
    headers:replace(MODEL_HEADER, model)
    headers:replace(SCOPE_HEADER, model)
    if version ~= "" then
      headers:replace(PIN_HEADER, version)
      headers:replace(CLUSTER_HEADER, CLUSTER_FORMAT:format(model, version, protocol))
    end
  end
end

-- Milliseconds of a grpc-timeout; nil for what is none.
local UNIT_MS = { H = 3600000, M = 60000, S = 1000, m = 1, u = 1e-3, n = 1e-6 }

local function timeout_ms(text)
  local number, unit = (text or ""):match("^(%d+)([HMSmun])$")
  if number == nil or #number > 8 then
    return nil
  end
  return math.min(math.max(math.ceil(number * UNIT_MS[unit]), 1), 1e9)
end

-- What gRPC itself would read from the headers of a call; clusters remove it before a node's gRPC
-- library can see it. That library answers bad values with bare errors, which count as illness.
local function check_call(handle, headers)
  local encoding = headers:get("grpc-encoding")
  if encoding ~= nil and encoding ~= "identity" then
    refuse(handle, true, ENCODING_NOT_ACCEPTED)
    return false
  end
  local left = timeout_ms(headers:get("grpc-timeout"))
  if left ~= nil then
    headers:replace(DEADLINE_HEADER, string.format("%d", left))
  end
  return true
end

local function ask_grpc(handle, method)
  if method == STREAM_METHOD then
    ask(handle, handle:headers():get(MODEL_HINT) or "", nil, "grpc")
    return true
  end
  if MODEL_METHODS[method] == nil then
    return true
  end
  local body = handle:body()
  local found, refusal
  if body == nil then
    refusal = INVALID_MESSAGE
  else
    found, refusal = read_message(body)
  end
  if found == nil then
    refuse(handle, true, refusal)
    return false
  end
  ask(handle, found[1], found[2], "grpc")
  return true
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local grpc = is_grpc(headers)
  local tenant = headers:get(TENANT_HEADER)
  if tenant == nil then
    -- The filter before this one did not decide, so nothing may pass.
    refuse(handle, grpc, INVALID_API_KEY)
    return
  end
  if tenant == "-" then
    headers:remove(TENANT_HEADER)
  end
  local path = headers:get(":path"):match("^[^?]*")
  if grpc then
    if not check_call(handle, headers) then
      return
    end
    if path:sub(1, #SERVICE) == SERVICE and not ask_grpc(handle, path:sub(#SERVICE + 1)) then
      return
    end
  else
    local model, rest = path:match("^/v2/models/([^/]+)(.*)$")
    if model ~= nil and (rest == "" or rest:sub(1, 1) == "/") then
      ask(handle, model, rest:match("^/versions/([^/]+)"), "http")
    end
  end
  handle:clearRouteCache()
end
