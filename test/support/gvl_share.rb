# frozen_string_literal: true

# The share of its time that a Ruby thread gets while other threads wait in calls: all of it, if they wait without the GVL.
module GVLShare
  SCHEDULE = "/proc/thread-self/schedstat" # ns that the thread ran, ns that it was runnable without a processor

  # The calling thread counts for `seconds`, and never sleeps. Time that other programs took does not count, if the system reports
  # it.
  # @return [Float] 1.0: the thread had all of its time
  def self.while_counting(seconds)
    start = clock
    ran = processor_time
    queued = queue_time
    count = 0
    count += 1 while clock < start + seconds
    (processor_time - ran) / (clock - start - (queue_time - queued))
  end

  # @param call [BlockingCalls::Call]
  # @param on [Object] the stuck object of the call
  # @param deadline [Numeric] the call's deadline in seconds
  # @yieldparam thread [Thread] the thread that waits in the call
  # @return [Float]
  def self.beside(call, on, deadline, seconds)
    thread = Thread.new do
      Thread.current.report_on_exception = false
      call.run(on, deadline)
    rescue Penstock::ConsumeError => e
      retry if e.code == :all_brokers_down # librdkafka itself waits only half a second
      raise
    end
    sleep 0.02 # the thread is inside the call
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
