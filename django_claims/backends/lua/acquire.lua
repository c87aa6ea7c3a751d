-- acquire.lua: grant all of the names or none.
--
-- KEYS[1]  the fence counter, a number that never shrinks
-- KEYS[2]  the index: a sorted set of names by expiry (ms)
-- KEYS[3]  the stop flags: a hash by name
-- KEYS[4…] the leases, one a name
-- ARGV[1]  owner token        ARGV[2]  TTL, ms
-- ARGV[3]  heartbeat, ms      ARGV[4]  holder, one line of JSON
-- ARGV[5…] a pair for each lease: its name; the fence of a dead run to take over from, or ''
--
-- Returns {1, fence, µs of the grant}
--      or {0, which, now µs, kind, value, ms left, flag}   held; see read.lua for the last four
--      or {2, which, now µs, flag}                         kept stopped
--
-- The record: "1 token fence acquired_us ttl_ms heartbeat_ms kind\nholder\nprogress".
-- When it was renewed follows from the ms left.

local token, ttl = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local mine = '1 ' .. token .. ' '
local wanted, own = #KEYS - 3, 0
local first
local flags = {}

for i = 1, wanted do
  local name, over = ARGV[3 + 2 * i], ARGV[4 + 2 * i]
  local flag = redis.call('HGET', KEYS[3], name)
  flags[i] = flag
  if flag then
    local kind, ends = string.match(flag, '^(%a) %d+ (%d+) ')
    if kind == 'k' and (ends == '0' or tonumber(ends) > now) then
      return {2, i, string.format('%.0f', now), flag}
    end
  end
  local value = redis.pcall('GET', KEYS[3 + i])
  if value then
    local text = type(value) == 'string'
    if text and string.sub(value, 1, #mine) == mine then
      own = own + 1
      first = first or value
    elseif not (text and over ~= '' and string.match(value, '^1 %S+ (%d+) %d+ %d+ %d+ h\n') == over) then
      return {0, i, string.format('%.0f', now), text and 1 or 2, text and value or '',
              redis.call('PTTL', KEYS[3 + i]), flag or ''}
    end
  end
end

if own == wanted then
  local fence, since = string.match(first, '^1 %S+ (%d+) (%d+) ')
  for i = 1, wanted do
    redis.call('PEXPIRE', KEYS[3 + i], ttl)
  end
  return {1, fence, since}
end

-- By the clock, so that it grows also after the counter was lost. Not tostring(): 14 digits are too few.
local since = string.format('%.0f', now)
local last = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
local fence = last < now and since or string.format('%.0f', last + 1)
redis.call('SET', KEYS[1], fence)
local record = mine .. fence .. ' ' .. since .. ' ' .. ttl .. ' ' .. ARGV[3] .. ' h\n' .. ARGV[4] .. '\n'
local now_ms = math.floor(now / 1000)
for i = 1, wanted do
  local name = ARGV[3 + 2 * i]
  redis.call('SET', KEYS[3 + i], record, 'PX', ttl)
  redis.call('ZADD', KEYS[2], now_ms + ttl, name)
  if flags[i] then
    redis.call('HDEL', KEYS[3], name) -- of a run that is over, or kept up to now
  end
end
-- The index forgets the dead faster than new ones come (now and then many), and ends with the last of them.
if now % 16 == 0 then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now_ms - 1, 'LIMIT', 0, 160)) do
    redis.call('ZREM', KEYS[2], name)
  end
end
if redis.call('PTTL', KEYS[2]) < ttl + 1000 then
  redis.call('PEXPIRE', KEYS[2], ttl + 1000)
end
return {1, fence, since}
