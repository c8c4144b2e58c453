# frozen_string_literal: true

require "socket"
require "penstock"
require_relative "../support/blocking_calls"
require_relative "../support/gvl_share"

# Every call that can wait, stuck, while another thread counts: what a call takes of that thread's time. Once where nobody
# listens, and once where somebody accepts and says nothing; what has to have had a cluster, where that one does not answer.
#
#   rake test:gvl [SECONDS=2] [ONLY=regular expression]
class GVL
  include BlockingCalls::Stuck

  BAR = 0.9
  TRIES = 3 # what else goes on in the process, such as a collection, is no call's fault each time

  def initialize(seconds, only)
    @seconds = seconds
    @calls = BlockingCalls::ALL.reject(&:brief).select { |call| only.nil? || call.name.match?(only) }
    @clusters = []
  end

  # @return [Boolean] whether no call was below the bar
  def call
    shares = %w[listens answers].flat_map do |does|
      @silence = silence if does == "answers"
      where = "nobody #{does}"
      @calls.map { |call| [share(call), "#{call.name}, where #{where}"] }
    end
    worst, name = shares.min
    puts format("gvl: a thread that counts had %<worst>.1f %% of its time, or more, beside %<calls>d calls that were stuck for " \
                "%<seconds>g s each; least beside %<name>s", worst: worst * 100, calls: shares.size, seconds: @seconds, name:)
    worst > BAR
  end

  private

  # The system shakes hands for a socket that nobody takes connections from.
  def silence
    @server = TCPServer.new("127.0.0.1", 0)
    @server.listen(1_000)
    "127.0.0.1:#{@server.local_address.ip_port}"
  end

  def unanswering = @silence || super
  def own_cluster = Penstock::EmbeddedCluster.new.tap { |made| @clusters << made }

  def share(call)
    best = 0
    TRIES.times { best > BAR || best = [best, once(call)].max }
    best
  end

  def once(call)
    on = stuck(call.stuck, @seconds * 3)
    GVLShare.beside(call, on, @seconds * 3, @seconds) { |thread| thread.alive? or abort "gvl: #{call.name} was not stuck" }
  ensure
    unstick
    @stuck_producers = @stuck_consumers = nil
    @clusters.each(&:close).clear
  end
end

passed = GVL.new(Float(ENV.fetch("SECONDS", "2")), ENV["ONLY"] && Regexp.new(ENV["ONLY"])).call
puts "Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"
exit passed
