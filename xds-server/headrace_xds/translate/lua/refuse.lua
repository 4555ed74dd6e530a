-- Answers a request with a refusal, in the form its protocol expects.
local function is_grpc(headers)
  local kind = headers:get("content-type")
  return kind ~= nil and kind:sub(1, 16) == "application/grpc"
end

local function refuse(handle, grpc, refusal)
  if grpc then
    handle:respond({
      [":status"] = "200",
      ["content-type"] = "application/grpc",
      ["grpc-status"] = refusal.grpc,
      ["grpc-message"] = refusal.message,
    }, nil)
    return
  end
  local headers = { [":status"] = refusal.http, ["content-type"] = "application/json" }
  if refusal.http == "401" then
    headers["www-authenticate"] = "Bearer"
  end
  handle:respond(headers, refusal.body)
end
