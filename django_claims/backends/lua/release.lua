-- release.lua: end leases that their owner still has, and its places in line.
--
-- KEYS[1]  the index          KEYS[2]  the stop flags
-- KEYS[3]  the fence counter
-- KEYS[4…] the leases
-- ARGV     three for each lease: name, owner token, ms to leave it resting (0: none)
--
-- Returns one for each lease: 1 released, 0 nobody had it, -1 another's.

local answer, waited, flag, is_one = {}, nil, nil, #KEYS == 4

local function delete(i)
  redis.call('DEL', KEYS[3 + i])
  redis.call('ZREM', KEYS[1], ARGV[3 * i - 2])
end

for i = 1, #KEYS - 3 do
  local name, token, rest = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local key = KEYS[3 + i]
  local value = redis.pcall('GET', key)
  local mine = '1 ' .. token .. ' '
  local waits = redis.call('EXISTS', key .. '\nline') == 1
  flag = nil
  if not value then
    answer[i] = 0
  elseif type(value) ~= 'string' or string.sub(value, 1, #mine) ~= mine then
    answer[i] = -1
  else
    answer[i] = 1
    flag = redis.call('HGET', KEYS[2], name)
    if rest == '0' then
      if not (waits and is_one) then delete(i) end -- else below, unless it is another's by then
    else
      local head, holder = string.match(value, '^1 %S+ (.*) %a\n([^\n]*)\n')
      redis.call('PEXPIRE', key, rest) -- before the write that needs memory
      redis.call('SET', key, '1 - ' .. head .. ' r\n' .. holder .. '\n', 'PX', rest)
      local time = redis.call('TIME')
      redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000) + rest, name)
      if redis.call('PTTL', KEYS[1]) < rest + 1000 then
        redis.call('PEXPIRE', KEYS[1], rest + 1000)
      end
    end
    if flag and string.sub(flag, 1, 1) == 'r' then
      redis.call('HDEL', KEYS[2], name)
      flag = nil
    end
  end
  if waits then
    waited = waited or {}
    waited[#waited + 1] = i
  end
end

if waited then
  -- include line.lua

  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  for _, i in ipairs(waited) do
    local name, token, rest, key = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i], KEYS[3 + i]
    if answer[i] ~= 1 then
      leave(key, token) -- of one who waited and gave up
    elseif rest == '0' then
      if not is_one then flag = redis.call('HGET', KEYS[2], name) end
      local _, is_granted = pass_on(name, key, KEYS[1], KEYS[2], KEYS[3], '', now, 0, flag)
      if is_one and not is_granted then delete(i) end
    else
      -- Let the first in line ask anew, so that it knows when the rest is over.
      local first, waiter = first_in_line(key, '', now, 0)
      while first and waiter.channel ~= '' and redis.pcall('PUBLISH', waiter.channel, waiter.number .. ' ') == 0 do
        leave(key, first)
        first, waiter = first_in_line(key, '', now, 0)
      end
    end
  end
end
return answer
