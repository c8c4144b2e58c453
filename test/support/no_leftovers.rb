# frozen_string_literal: true

# After each test: no open client, no thread of ours, no Ruby thread more than before, and no wake-up missed.
module NoLeftovers
  def setup
    super
    @threads_before = Thread.list
  end

  def teardown
    super
    eventually(10) { Penstock::Client.open_count.zero? }
    eventually { (Thread.list - @threads_before).none?(&:alive?) }
    eventually { (native_threads - ["penstock.cluster"]).empty? }
    assert_equal 0, Penstock::Poller.instance.stats[:missed_wakeups], "wake-ups missed"
  end

  # @return [Array<String>] names of this process's native threads of ours, as far as the system keeps them
  def native_threads
    Dir["/proc/self/task/*/comm"].filter_map do |path|
      name = File.read(path).chomp
      name if name.start_with?("penstock.") && name != "penstock.dispat"
    rescue Errno::ENOENT, Errno::ESRCH
      nil # ended meanwhile
    end
  end
end
