# frozen_string_literal: true

# After each test: no open client, no thread of ours, no Ruby thread more than before, and no wake-up missed.
module NoLeftovers
  # Our Ruby threads, as the system shortens their names. Some Rubies keep a thread of the system, and its name, for 3 seconds
  # after its Ruby thread has ended; those are judged by Thread.list.
  RUBYS = %w[
    penstock.dispat penstock.closin penstock.idle penstock.events penstock.statis penstock.statsd penstock.ractor penstock.tokens
  ].freeze

  def setup
    super
    @threads_before = Thread.list
    @open_before = Internal::ProducerClient.open_count # what a test before this one left, and failed for
    @natives_before = native_threads
  end

  def teardown
    super
    wait_for_the_end_of_what_is_closing
    assert_equal 0, Penstock::Poller.instance.stats[:missed_wakeups], "wake-ups missed"
  end

  def wait_for_the_end_of_what_is_closing
    eventually(10, -> { "left open: #{left_open}" }) { Internal::ProducerClient.open_count <= @open_before }
    eventually { (Thread.list - @threads_before).none?(&:alive?) }
    eventually(5, -> { "left running: #{native_threads}" }) { (native_threads - @natives_before).empty? }
  end

  # What is known of the clients that are open: those whose Ruby object is gone are being closed.
  def left_open
    clients = ObjectSpace.each_object(Internal::ProducerClient).map { |client| describe(client) }
    "#{Internal::ProducerClient.open_count} clients; objects: #{clients.tally}; threads: #{native_threads.tally}"
  end

  def describe(client)
    "#{client.state}, #{client.queue_size} messages"
  rescue Penstock::Error, TypeError => e
    e.message # only allocated
  end

  # @return [Array<String>] names of this process's native threads of ours, as far as the system keeps them
  def native_threads
    Dir["/proc/self/task/*/comm"].filter_map do |path|
      name = File.read(path).chomp
      name if name.start_with?("penstock.") && name != "penstock.cluster" && !RUBYS.include?(name)
    rescue Errno::ENOENT, Errno::ESRCH
      nil # ended meanwhile
    end
  end
end
