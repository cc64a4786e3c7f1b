-- Requests for wrk. The environment has the tenant's KEY, the WORDS of a text, and the PAUSE in
-- milliseconds before each request. `done` prints a line for programs.

local nouns = {
    "stone", "water", "river", "music", "paper", "light",
    "garden", "history", "science", "market", "winter", "bridge",
}
local words = tonumber(os.getenv("WORDS"))
local pause = tonumber(os.getenv("PAUSE"))
local threads = {}

function setup(thread)
    table.insert(threads, thread)
end

function init()
    sent, ok, full, unavailable, other, unasked = 0, 0, 0, 0, 0, 0
    headers = {
        ["Authorization"] = "Bearer " .. os.getenv("KEY"),
        ["Content-Type"] = "application/json",
    }
end

if pause > 0 then
    function delay()
        return pause
    end
end

function request()
    local text = {}
    for word = 1, words do
        sent = sent + 1
        text[word] = nouns[sent % #nouns + 1]
    end
    local body = '{"texts": ["' .. table.concat(text, " ") .. '"]}'
    return wrk.format("POST", "/embed", headers, body)
end

function response(status, found)
    local retry_after
    for name, value in pairs(found) do
        if name:lower() == "retry-after" then
            retry_after = tonumber(value)
        end
    end
    if status == 200 then
        ok = ok + 1
    elseif status == 429 then
        full = full + 1
    elseif status == 503 then
        unavailable = unavailable + 1
    else
        other = other + 1
    end
    if (status == 429 or status == 503) and not retry_after then
        unasked = unasked + 1
    end
end

function done(summary, latency)
    local sums = {}
    for _, name in ipairs({ "ok", "full", "unavailable", "other", "unasked" }) do
        sums[name] = 0
        for _, thread in ipairs(threads) do
            sums[name] = sums[name] + thread:get(name)
        end
    end
    local errors = summary.errors
    local broken = errors.connect + errors.read + errors.write + errors.timeout
    print(string.format(
        "load: ok=%d full=%d unavailable=%d other=%d without_retry_after=%d broken=%d "
            .. "per_second=%.2f p50_ms=%.2f p95_ms=%.2f",
        sums.ok, sums.full, sums.unavailable, sums.other, sums.unasked, broken,
        sums.ok * 1e6 / summary.duration, latency:percentile(50) / 1e3, latency:percentile(95) / 1e3
    ))
end
