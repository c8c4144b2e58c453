# frozen_string_literal: true

require "socket"
require "penstock"
require_relative "../support/blocking_calls"
require_relative "../support/gvl_share"

# Measures how much time each call that can wait takes from another thread, which counts meanwhile. Each call is stuck twice: once
# at a port without a server, and once at a server that accepts connections and never answers. A call that needs a cluster first
# is stuck at a cluster that stops answering.
#
#   rake test:gvl [SECONDS=2] [ONLY=regular expression]
class GVL
  include BlockingCalls::Stuck

  BAR = 0.9
  TRIES = 3 # a collection, for example, can disturb one attempt

  def initialize(seconds, only)
    @seconds = seconds
    @calls = BlockingCalls::ALL.reject(&:brief).select { |call| only.nil? || call.name.match?(only) }
    @clusters = []
  end

  # @return [Boolean] whether every call stayed above the bar
  def call
    shares = ["no server", "a silent server"].flat_map do |where|
      @silent_server = silent_server if where == "a silent server"
      @calls.map { |call| [share(call), "#{call.name} with #{where}"] }
    end
    worst, name = shares.min
    puts format("gvl: a counting thread had at least %<worst>.1f %% of its time during %<calls>d calls that were stuck for " \
                "%<seconds>g s each; the least during %<name>s", worst: worst * 100, calls: shares.size, seconds: @seconds, name:)
    worst > BAR
  end

  private

  # The system completes handshakes for this socket, although no thread accepts the connections.
  def silent_server
    @server = TCPServer.new("127.0.0.1", 0)
    @server.listen(1_000)
    "127.0.0.1:#{@server.local_address.ip_port}"
  end

  def unanswering = @silent_server || super
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
    @stuck_producers = @stuck_consumers = @stuck_admins = nil
    @clusters.each(&:close).clear
  end
end

passed = GVL.new(Float(ENV.fetch("SECONDS", "2")), ENV["ONLY"] && Regexp.new(ENV["ONLY"])).call
puts "Ruby #{RUBY_VERSION}, librdkafka #{Penstock.librdkafka_version}"
exit passed
