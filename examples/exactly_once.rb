# frozen_string_literal: true

# Workers read orders and write a bill for each, in transactions. Some blocks fail, some abort, and one worker after the other is
# killed. At the end each order has one bill. It needs a Kafka: the embedded cluster does not hide what is aborted.
#
#   ruby -Ilib examples/exactly_once.rb BROKERS [ORDERS [WORKERS]]    the status is 1 if a bill is missing or repeated
#   ruby -Ilib examples/exactly_once.rb $(bin/kafka up)

require "penstock"
require "securerandom"

BROKERS, orders, workers = ARGV
abort "give the brokers: #{$PROGRAM_NAME} localhost:9092" unless BROKERS
ORDERS = Integer(orders || 2_000)
WORKERS = Integer(workers || 2)
RUN = "exactly-once-#{SecureRandom.hex(4)}".freeze
KILLS = 3

def consumer(group, **more)
  Penstock::Consumer.new("bootstrap.servers": BROKERS, "group.id": group, "auto.offset.reset": "earliest",
                         "enable.auto.commit": false, "session.timeout.ms": 6_000, log_level: 0, **more)
end

# What each worker process does. A process that is started again has the same transactional.id: so it first ends the transaction
# that its predecessor has left open.
def work(number)
  stopping = false
  trap("TERM") { stopping = true }
  producer = Penstock::Producer.new("bootstrap.servers": BROKERS, "transactional.id": "#{RUN}-#{number}", log_level: 0)
  orders = consumer("#{RUN}-billing").subscribe("#{RUN}-orders")
  until stopping
    begin
      producer.transaction(orders, max: 50) do |batch|
        producer.produce_many_async(batch.map { |order| { topic: "#{RUN}-bills", payload: "bill for #{order.payload}" } })
        raise Penstock::AbortTransaction if rand(10).zero?
        raise "cannot bill" if rand(10).zero?
      end
    rescue RuntimeError
      next # the same orders come again
    end
  end
  [orders, producer].each(&:close)
end

# @return [Array<Integer>] their process ids
def start(numbers) = numbers.map { |number| fork { work(number) } }

def stop(pid, signal)
  Process.kill(signal, pid)
  Process.wait(pid)
end

seed = Penstock::Producer.new("bootstrap.servers": BROKERS, log_level: 0)
seed.produce_many_sync(Array.new(ORDERS) { |i| { topic: "#{RUN}-orders", payload: "order #{i}", key: i.to_s } })
sleep 0.1 until seed.partition_count("#{RUN}-bills") # the broker creates it
seed.close

pids = start(0...WORKERS)
bills = Hash.new(0)
reader = consumer("#{RUN}-reader").subscribe("#{RUN}-bills")
kills = 0
deadline = Time.now + 120
quiet_since = Time.now
until (bills.size >= ORDERS && Time.now - quiet_since > 3) || Time.now > deadline
  batch = reader.poll_batch(max: 1_000)
  batch.payloads.each { |bill| bills[bill] += 1 }
  quiet_since = Time.now unless batch.empty?
  next unless kills < KILLS && bills.size > kills * ORDERS / (KILLS + 1)

  stop(pids.shift, :KILL)
  pids.concat(start([kills % WORKERS]))
  kills += 1
end
pids.each { |pid| stop(pid, :TERM) }
reader.close

puts "#{ORDERS} orders, #{kills} workers killed: #{bills.size} billed, #{bills.count { |_, times| times > 1 }} more than once"
exit bills.size == ORDERS && bills.values.all?(1)
