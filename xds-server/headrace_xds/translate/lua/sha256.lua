-- SHA-256 of a string, as lower-case hex, on LuaJIT's 32-bit operations.
local band, bxor, bnot, ror, rshift, tobit, tohex =
  bit.band, bit.bxor, bit.bnot, bit.ror, bit.rshift, bit.tobit, bit.tohex

local ROUND = {
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}

local schedule = {}

local function compress(state, block, offset)
  local w = schedule
  for i = 1, 16 do
    local a, b, c, d = block:byte(offset + i * 4 - 3, offset + i * 4)
    w[i] = tobit(a * 0x1000000 + b * 0x10000 + c * 0x100 + d)
  end
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    local s0 = bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
    local s1 = bxor(ror(y, 17), ror(y, 19), rshift(y, 10))
    w[i] = tobit(w[i - 16] + s0 + w[i - 7] + s1)
  end
  local a, b, c, d, e, f, g, h = unpack(state)
  for i = 1, 64 do
    local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
    local choice = bxor(band(e, f), band(bnot(e), g))
    local first = tobit(h + s1 + choice + ROUND[i] + w[i])
    local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
    local majority = bxor(band(a, b), band(a, c), band(b, c))
    h, g, f, e, d, c, b, a = g, f, e, tobit(d + first), c, b, a, tobit(first + tobit(s0 + majority))
  end
  local added = { a, b, c, d, e, f, g, h }
  for i = 1, 8 do
    state[i] = tobit(state[i] + added[i])
  end
end

local function sha256(text)
  local length = #text
  local bits = length * 8
  local tail = string.char(0, 0, 0, 0, math.floor(bits / 0x1000000) % 256,
    math.floor(bits / 0x10000) % 256, math.floor(bits / 0x100) % 256, bits % 256)
  local padded = text .. "\128" .. string.rep("\0", (55 - length) % 64) .. tail
  local state = {
    tobit(0x6a09e667), tobit(0xbb67ae85), tobit(0x3c6ef372), tobit(0xa54ff53a),
    tobit(0x510e527f), tobit(0x9b05688c), tobit(0x1f83d9ab), tobit(0x5be0cd19),
  }
  for offset = 0, #padded - 1, 64 do
    compress(state, padded, offset)
  end
  local hex = {}
  for i = 1, 8 do
    hex[i] = tohex(state[i])
  end
  return table.concat(hex)
end
