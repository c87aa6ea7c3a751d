-- promised.lua: is a name that is free owed to somebody who waits?
--
-- KEYS[1]  the lease
--
-- Returns 1 or 0.

-- include line.lua

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
while true do
  local token, waiter = first_in_line(KEYS[1], '', now, 0)
  if not token then
    return 0
  elseif waiter.channel == '' or hearers(waiter.channel) > 0 then
    return 1
  end
  leave(KEYS[1], token)
end
