-- renew.lua: push back the expiry of leases that their owner still has. Never creates one.
--
-- KEYS[1]  the index          KEYS[2]  the stop flags
-- KEYS[3…] the leases
-- ARGV     six for each lease: name, owner token, fence, TTL in ms,
--          progress ('-' if unchanged, else '+' and one line of JSON), '1' if the holder has seen its stop flag
--
-- Returns {now µs, then two for each lease: outcome, flag or ''}
-- Outcomes: 1 renewed, 0 gone, -1 another's, -2 force-released.
--
-- The first write of a renewal is PEXPIRE, which a full server still allows; all later ones it must.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)
local flagged = redis.call('HLEN', KEYS[2]) > 0
local longest = 0
local answer = {string.format('%.0f', now)}

for i = 1, #KEYS - 2 do
  local at = 6 * (i - 1)
  local name, token, fence, ttl = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local key = KEYS[2 + i]
  local value = redis.pcall('GET', key)
  local mine = '1 ' .. token .. ' '
  local outcome, said = 0, ''
  if type(value) == 'string' and string.sub(value, 1, #mine) == mine then
    outcome = 1
    redis.call('PEXPIRE', key, ttl)
    local run, holder, progress = string.match(value, '^([^\n]*) g\n([^\n]*\n)(.*)$')
    if run then -- granted in line, see line.lua: this confirms it
      value = run .. ' h\n' .. holder .. progress
    end
    if string.sub(ARGV[at + 5], 1, 1) == '+' then
      local head = string.match(value, '^[^\n]*\n[^\n]*\n')
      redis.call('SET', key, head .. string.sub(ARGV[at + 5], 2), 'PX', ttl)
    elseif run then
      redis.call('SET', key, value, 'PX', ttl)
    end
    redis.call('ZADD', KEYS[1], now_ms + ttl, name)
    longest = math.max(longest, tonumber(ttl))
    local flag = flagged and redis.call('HGET', KEYS[2], name)
    if flag then
      local kind, of, ends, asked, seen, words = string.match(flag, '^(%a) (%d+) (%d+) (%d+) (%d+) (.*)$')
      local run = kind == 'r' and of == fence
      if run or (kind == 'k' and (ends == '0' or tonumber(ends) > now)) then
        said = flag
        if run or (seen == '0' and ARGV[at + 6] == '1') then
          -- A run's flag lives as long as its lease.
          if run then ends = string.format('%.0f', now + ttl * 1000) end
          if seen == '0' and ARGV[at + 6] == '1' then seen = string.format('%.0f', now) end
          said = table.concat({kind, of, ends, asked, seen, words}, ' ')
          redis.call('HSET', KEYS[2], name, said)
        end
      end
    end
  else
    if value then outcome = -1 end
    local forced = flagged and redis.call('HGET', KEYS[2], name .. '\n')
    if forced and string.match(forced, '^f (%d+) ') ~= fence then
      forced = redis.call('HGET', KEYS[2], name .. '\n' .. fence)
    end
    if forced then outcome = -2 end
  end
  answer[2 * i] = outcome
  answer[2 * i + 1] = said
end

if longest > 0 and redis.call('PTTL', KEYS[1]) < longest + 1000 then
  redis.call('PEXPIRE', KEYS[1], longest + 1000)
end
return answer
