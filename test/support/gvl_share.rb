# frozen_string_literal: true

# How much of its time a thread of Ruby has while others wait in calls: all of it, if they wait without the GVL.
module GVLShare
  SCHEDULE = "/proc/thread-self/schedstat" # ns that the thread ran, ns that it could have and no processor was free

  # This thread counts for so long, and never sleeps. What other programs took is no part of its time, where the system tells.
  # @return [Float] 1.0: nothing was taken from it
  def self.while_counting(seconds)
    start = clock
    ran = processor_time
    queued = queue_time
    count = 0
    count += 1 while clock < start + seconds
    (processor_time - ran) / (clock - start - (queue_time - queued))
  end

  # @param call [BlockingCalls::Call]
  # @param on [Object] what is stuck for it
  # @param deadline [Numeric] seconds that the call may last
  # @yieldparam thread [Thread] the one that waits in the call
  # @return [Float]
  def self.beside(call, on, deadline, seconds)
    thread = Thread.new do
      Thread.current.report_on_exception = false
      call.run(on, deadline)
    rescue Penstock::ConsumeError => e
      retry if e.code == :all_brokers_down # librdkafka itself waits half a second only
      raise
    end
    sleep 0.02 # it is inside
    share = while_counting(seconds)
    yield thread
    share
  ensure
    thread&.kill
  end

  def self.clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  def self.processor_time = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)
  def self.queue_time = File.readable?(SCHEDULE) ? File.read(SCHEDULE).split[1].to_i / 1e9 : 0
  private_class_method :clock, :processor_time, :queue_time
end
