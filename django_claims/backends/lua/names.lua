-- names.lua: the names of all live leases.
--
-- KEYS[1]  the index
--
-- Returns them in no useful order. Forgets a bounded number of dead ones on the way.

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_ms - 1, 'LIMIT', 0, 1000)) do
  redis.call('ZREM', KEYS[1], name)
end
return redis.call('ZRANGEBYSCORE', KEYS[1], now_ms, '+inf')
