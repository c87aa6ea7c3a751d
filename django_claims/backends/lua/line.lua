-- line.lua: who waits for a name, first come first served. Stands in the verbs that pass names on.
--
-- Two keys for each name, under its lease's key and a newline, that end 10 s after the last waiter asked:
--   line     a sorted set of tokens by ticket, the µs at which each came
--   waiters  a hash by token: "1 seen_us number ttl_ms heartbeat_ms channel\nholder\n", and the keys of the other
--            leases that it wants as well, a newline after each
--
-- A free name is granted to the first in line at once, for GRANT_MS (or its TTL, if that is less), and its process
-- is told on its channel: "number fence granted_us". A renewal or an acquire with its token confirms the grant:
--
--   holder     release ─┐
--   store               └ granted to 1st ────────────────────── confirmed ── …
--   1st in line                 └ hears of it, works ── renews ─┘
--
-- Who is not there to be told is dead, and passed over. Who was told and does not confirm, or asks no more, is dead
-- too, but nobody can know at once: after CONFIRM_US the next one gets it who has been seen since. So the dead hold
-- the living up for CONFIRM_US, all of them together.
--
-- Who wants several names stands in line for each, and is told to ask when all of them are free: nothing is held for
-- it before. Else those behind it pass, so that no name lies idle for want of another; but for two seconds out of
-- seven nobody does, so that it gets its turn in a crowd as well. One that came before is before in each line, so
-- no two wait for each other.

local GRANT_MS, CONFIRM_US, STALE_US, LINE_MS = 3000, 1900000, 3000000, 10000
local POLL_MS, SOON_MS = 1500, 200
local PASSED_US, ROUND_US = 5000000, 7000000

local function stamp(number)
  return string.format('%.0f', number) -- not tostring(): 14 digits are too few
end

local function line_of(key) return key .. '\nline' end
local function waiters_of(key) return key .. '\nwaiters' end

local function is_kept(flag, now)
  if not flag then return false end
  local kind, ends = string.match(flag, '^(%a) %d+ (%d+) ')
  return kind == 'k' and (ends == '0' or tonumber(ends) > now)
end

-- See acquire.lua.
local function next_fence(counter, now)
  local last = tonumber(redis.call('GET', counter) or 0) or 0
  local fence = last < now and stamp(now) or stamp(last + 1)
  redis.call('SET', counter, fence)
  return fence
end

local function leave(key, token)
  redis.call('ZREM', line_of(key), token)
  redis.call('HDEL', waiters_of(key), token)
end

-- How many hear what is said on a channel. What cannot be told is one.
local function hearers(channel)
  local said = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return said.err and 1 or tonumber(said[2])
end

-- To whom a free name is owed before `me`: its token, and what it said of itself. Forgets who asks no more.
local function first_in_line(key, me, now, since)
  local line, at = line_of(key), 0
  while true do
    local token, ticket = unpack(redis.call('ZRANGE', line, at, at, 'WITHSCORES'))
    if not token or token == me then return nil end
    local record = redis.call('HGET', waiters_of(key), token)
    local seen, number, ttl, heartbeat, channel, holder, others =
      string.match(record or '', '^1 (%d+) (%d+) (%d+) (%d+) ([^\n]*)\n([^\n]*)\n(.*)$')
    -- Of several names nothing is held for it that would end, so it has less time.
    local stale = others ~= '' and CONFIRM_US or STALE_US
    if not record or (seen and (now - seen > stale or tonumber(seen) < since)) then
      leave(key, token)
    elseif not seen then
      at = at + 1 -- of a newer version; it asks for itself
    else
      local waits = false
      for other in string.gmatch(others, '[^\n]+') do
        waits = waits or (other ~= key and redis.call('EXISTS', other) == 1)
      end
      if not waits or (now - ticket) % ROUND_US >= PASSED_US then
        return token, {number = number, ttl = ttl, heartbeat = heartbeat, channel = channel, holder = holder,
                       several = others ~= '', waits = waits}
      end
      at = at + 1
    end
  end
end

-- Give a free name to whom it is owed before `me`. Returns whether there is anybody, and whether that one has it now.
-- Those who were not seen after `since` are dead.
local function pass_on(name, key, index, flags, counter, me, now, since, flag)
  if is_kept(flag, now) then return false end
  while true do
    local token, waiter = first_in_line(key, me, now, since)
    if not token then return false end
    if waiter.waits then return true end
    if not waiter.several then
      leave(key, token) -- first, since a full server allows it, and then what needs memory
    end
    local grant = waiter.several and '' or next_fence(counter, now) .. ' ' .. stamp(now)
    local heard = waiter.channel ~= '' and redis.pcall('PUBLISH', waiter.channel, waiter.number .. ' ' .. grant)
    if heard == 0 then
      leave(key, token) -- its process is no more
    elseif waiter.several then
      return true -- it asks now
    else
      local life = math.min(GRANT_MS, waiter.ttl)
      redis.call('SET', key, '1 ' .. token .. ' ' .. grant .. ' ' .. waiter.ttl .. ' ' .. waiter.heartbeat .. ' g\n' ..
                 waiter.holder .. '\n', 'PX', life)
      redis.call('ZADD', index, math.floor(now / 1000) + life, name)
      if redis.call('PTTL', index) < life + 1000 then
        redis.call('PEXPIRE', index, life + 1000)
      end
      if flag then
        redis.call('HDEL', flags, name) -- of a run that is over
      end
      return true, true
    end
  end
end
