# frozen_string_literal: true

# Checks after each test: no open client, no thread of Penstock, no additional Ruby thread, and no missed wake-up.
module NoLeftovers
  # How the names of Penstock's native threads begin, as the system truncates them. Those of its Ruby threads do not count: some
  # Rubies keep a native thread, and its name, for 3 seconds after its Ruby thread has ended. Thread.list decides about those.
  NATIVE = Dir[File.expand_path("../../ext/**/*.c", __dir__)]
           .flat_map { |file| File.read(file).scan(/"penstock\.[a-z]+/) }.map { |name| name[1, 15] }.freeze

  def setup
    super
    @threads_before = Thread.list
    @open_before = Internal::ProducerClient.open_count # clients that an earlier test left open, for which it failed
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

  # Descriptions of the clients that are open. Clients whose Ruby object is gone are being closed.
  def left_open
    clients = ObjectSpace.each_object(Internal::ProducerClient).map { |client| describe(client) }
    "#{Internal::ProducerClient.open_count} clients; objects: #{clients.tally}; threads: #{native_threads.tally}"
  end

  def describe(client)
    "#{client.state}, #{client.queue_size} messages"
  rescue Penstock::Error, TypeError => e
    e.message # only allocated
  end

  # @return [Array<String>] names of Penstock's native threads in this process, if the system reports them
  def native_threads
    Dir["/proc/self/task/*/comm"].filter_map do |path|
      name = File.read(path).chomp
      name if name.start_with?(*NATIVE) && name != "penstock.cluster"
    rescue Errno::ENOENT, Errno::ESRCH
      nil # the thread has ended meanwhile
    end
  end
end
