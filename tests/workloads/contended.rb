# contended.rb ROUNDS: a Mutex of Ruby's that the main thread holds ROUNDS times for 10 ms while three others wait for it. One of all may sleep in
# ppoll(2), for signals' sake.
# Facts: waits, waited_ns (for how long each of three, at least).
rounds = ARGV[0].to_i
lock = Mutex.new
puts "ready"
$stdout.flush
$stdin.getc
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) }
waited_ns = 0
rounds.times do
  lock.lock
  others = 3.times.map { Thread.new { lock.synchronize { } } }
  Thread.pass until others.all?(&:stop?)
  from = now.call
  sleep 0.01
  waited_ns += now.call - from
  lock.unlock
  others.each(&:join)
end
puts %({"workload":"contended","pid":#{Process.pid},"locks":[],"threads":[],"facts":{"waits":#{3 * rounds},"waited_ns":#{waited_ns}}})
