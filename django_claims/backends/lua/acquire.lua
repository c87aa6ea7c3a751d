-- acquire.lua: grant all of the names or none; who is refused may stand in line.
--
-- KEYS[1]  the fence counter, a number that never shrinks
-- KEYS[2]  the index: a sorted set of names by expiry (ms)
-- KEYS[3]  the stop flags: a hash by name
-- KEYS[4…] the leases, one a name
-- ARGV[1]  owner token        ARGV[2]  TTL, ms
-- ARGV[3]  heartbeat, ms      ARGV[4]  holder, one line of JSON
-- ARGV[5]  '' to try once; 'number channel' to stand in line, the channel '' if it cannot be told; '-' to leave it
-- ARGV[6…] a pair for each lease: its name; the fence of a dead run to take over from, or ''
--
-- Returns {1, fence, µs of the grant}
--      or {0, which, now µs, again, kind, value, ms left, flag}   held; see read.lua for the last four
--      or {2, which, now µs, flag}                                kept stopped
--      or {3, which, now µs, again}                               free, and owed to another who waits
-- again: ms after which one in line should ask anew; -1 if it cannot be told when its turn comes.
--
-- The record: "1 token fence acquired_us ttl_ms heartbeat_ms kind\nholder\nprogress".
-- When it was renewed follows from the ms left. Kinds: h held, g granted to one in line, r resting, o handed over.

local token, ttl, place = ARGV[1], ARGV[2], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)
local mine = '1 ' .. token .. ' '
local wanted = #KEYS - 3
local flags = {}

-- Mostly all names are free, and nobody waits: all else is in this block, so that it costs nothing.
local is_plain = place == ''
for i = 1, wanted do
  local key = KEYS[3 + i]
  flags[i] = redis.call('HGET', KEYS[3], ARGV[4 + 2 * i])
  is_plain = is_plain and not flags[i] and redis.call('EXISTS', key, key .. '\nline') == 0
end
if not is_plain then
  -- include line.lua

  local own, first = 0, nil

  local function leave_all()
    for i = 1, wanted do
      leave(KEYS[3 + i], token)
    end
  end

  -- Stand in line for all of the names, or leave it. Returns the ms after which to ask anew.
  local function refused(key, again)
    if place == '-' then leave_all() end
    local number, channel = string.match(place, '^(%d+) (.*)$')
    if not number then return -1 end
    local ticket = redis.call('ZSCORE', line_of(key), token)
    if ticket and channel ~= '' and hearers(channel) == 0 then channel = '' end -- it listens to another server
    ticket = ticket or stamp(now)
    local others = wanted > 1 and table.concat(KEYS, '\n', 4) .. '\n' or ''
    local record = table.concat({'1', stamp(now), number, ttl, ARGV[3], channel}, ' ') .. '\n' .. ARGV[4] .. '\n' .. others
    for i = 1, wanted do
      local line, waiters = line_of(KEYS[3 + i]), waiters_of(KEYS[3 + i])
      local put = redis.pcall('ZADD', line, 'NX', ticket, token)
      if type(put) == 'table' then return -1 end -- a full server: without a place, then
      redis.call('HSET', waiters, token, record)
      redis.call('PEXPIRE', line, LINE_MS)
      redis.call('PEXPIRE', waiters, LINE_MS)
    end
    return channel == '' and -1 or again()
  end

  local function held(i, value)
    local key = KEYS[3 + i]
    local text = type(value) == 'string'
    local left = redis.call('PTTL', key)
    local again = refused(key, function()
      local since = text and string.match(value, '^1 %S+ %d+ (%d+) %d+ %d+ g\n')
      if since then return math.min(math.max(math.ceil((CONFIRM_US - (now - since)) / 1000), 1), POLL_MS) end
      -- The first in line sees to it that the end of the lease is noticed.
      if left < 0 or left >= POLL_MS or redis.call('ZRANK', line_of(key), token) > 0 then return POLL_MS end
      return left + 1
    end)
    return {0, i, stamp(now), again, text and 1 or 2, text and value or '', left, flags[i] or ''}
  end

  for i = 1, wanted do
    local key, name, over = KEYS[3 + i], ARGV[4 + 2 * i], ARGV[5 + 2 * i]
    local value = redis.pcall('GET', key)
    local text = type(value) == 'string'
    local flag = flags[i]
    local is_own = text and string.sub(value, 1, #mine) == mine
    if is_kept(flag, now) then
      if is_own and string.match(value, '^[^\n]* g\n') then
        redis.call('DEL', key) -- granted before the stop, and not confirmed
        redis.call('ZREM', KEYS[2], name)
      end
      if place ~= '' then leave_all() end
      return {2, i, stamp(now), flag}
    end
    if is_own then
      own = own + 1
      first = first or value
    else
      local is_free, since = not value, 0
      if text then
        local fence, from, kind = string.match(value, '^1 %S+ (%d+) (%d+) %d+ %d+ (%a)\n')
        if kind == 'g' and now - from > CONFIRM_US then
          is_free, since = true, tonumber(from)
        end
        is_free = is_free or (over ~= '' and fence == over and (kind == 'h' or kind == 'g'))
      end
      if not is_free then return held(i, value) end
      if redis.call('EXISTS', line_of(key)) == 1
         and pass_on(name, key, KEYS[2], KEYS[3], KEYS[1], token, now, since, flag) then
        local new = redis.pcall('GET', key)
        if new and new ~= value then return held(i, new) end
        return {3, i, stamp(now), refused(key, function() return SOON_MS end)}
      end
    end
  end

  if own == wanted then
    local fence, since = string.match(first, '^1 %S+ (%d+) (%d+) ')
    for i = 1, wanted do
      redis.call('PEXPIRE', KEYS[3 + i], ttl)
    end
    local head, rest = string.match(first, '^([^\n]*) g(\n.*)$')
    if head then -- of one name: nobody is granted several in line
      redis.call('SET', KEYS[4], head .. ' h' .. rest, 'PX', ttl)
      redis.call('ZADD', KEYS[2], now_ms + ttl, ARGV[6])
      if redis.call('PTTL', KEYS[2]) < ttl + 1000 then
        redis.call('PEXPIRE', KEYS[2], ttl + 1000)
      end
    end
    return {1, fence, since}
  end
  if place ~= '' then leave_all() end -- granted, below
end

-- By the clock, so that it grows also after the counter was lost. Not tostring(): 14 digits are too few.
local since = string.format('%.0f', now)
local last = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
local fence = last < now and since or string.format('%.0f', last + 1)
redis.call('SET', KEYS[1], fence)
local record = mine .. fence .. ' ' .. since .. ' ' .. ttl .. ' ' .. ARGV[3] .. ' h\n' .. ARGV[4] .. '\n'
for i = 1, wanted do
  local name = ARGV[4 + 2 * i]
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
