-- read.lua: what is there now, of several names at one moment.
--
-- KEYS[1]  the stop flags
-- KEYS[2…] the leases
-- ARGV     the name of each lease
--
-- Returns {now µs, then four for each: kind, value, ms left (-1: no end), flag or ''}
-- Kinds: 0 nothing, 1 text, 2 a value of another type.

local time = redis.call('TIME')
local answer = {string.format('%.0f', time[1] * 1000000 + time[2])}
for i = 1, #KEYS - 1 do
  local value = redis.pcall('GET', KEYS[1 + i])
  local kind = 0
  if type(value) == 'string' then kind = 1 elseif value then kind = 2 end
  local at = 4 * (i - 1) + 1
  answer[at + 1] = kind
  answer[at + 2] = kind == 1 and value or ''
  answer[at + 3] = redis.call('PTTL', KEYS[1 + i])
  answer[at + 4] = redis.call('HGET', KEYS[1], ARGV[i]) or ''
end
return answer
