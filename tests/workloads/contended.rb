# contended.rb ROUNDS: a Mutex of Ruby's that the main thread holds ROUNDS times for 10 ms while another one waits for it.
# Facts: waits, waited_ns (for how long, at least).
rounds = ARGV[0].to_i
lock = Mutex.new
puts "ready"
$stdout.flush
$stdin.getc
now = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) }
waited_ns = 0
rounds.times do
  lock.lock
  other = Thread.new { lock.synchronize { } }
  Thread.pass until other.stop?
  from = now.call
  sleep 0.01
  waited_ns += now.call - from
  lock.unlock
  other.join
end
puts %({"workload":"contended","pid":#{Process.pid},"locks":[],"threads":[],"facts":{"waits":#{rounds},"waited_ns":#{waited_ns}}})
