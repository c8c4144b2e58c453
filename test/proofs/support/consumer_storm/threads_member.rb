# frozen_string_literal: true

require_relative "life"

class ConsumerStorm
  # A member with one consumer after another, each of which several threads use at once; see Life.
  class ThreadsMember < Member
    LIFE = (1.5..5.0) # seconds
    JOINING = 10 # seconds for the first assignment

    # @param closes_early [Boolean] whether a consumer may close at any time; otherwise the process has one consumer
    def initialize(seed:, auto_commit:, closes_early: true, profile: nil, **settings)
      super(**settings)
      @process = @id
      @random = Random.new(seed)
      @auto_commit = @kafka[:"enable.auto.commit"] = auto_commit
      @closes_early = closes_early
      @profile = profile&.to_sym
    end

    # Parts of the rebalance listener, on a thread that polls. It may be interrupted, too.
    def assigned(rebalance) = @life.listen { log(:assigned, rebalance.partitions.fetch(@topic, [])) }

    def lost(rebalance) = @life.listen { log(:revoked, rebalance.partitions.fetch(@topic, [])) }

    def revoked(rebalance)
      commit(rebalance.consumer) if @manual && @life.commits_in_listener
    ensure
      lost(rebalance)
    end

    # Writes all of the line, or nothing.
    def log(kind, data) = Thread.handle_interrupt(Object => :never) { super }

    public :make_consumer

    private

    def settings
      { topic: @topic, manual: @manual, auto_commit: @auto_commit, endings: @closes_early && !@manual, profile: @profile }
    end

    def live
      number = 0
      loop do
        @id = "#{@process}.#{number += 1}"
        @life = Life.new(self, @random.rand(2**32), **settings)
        @life.run(@closes_early ? @random.rand(LIFE) : Float::INFINITY) { @stopped || Process.ppid != @parent }
        break if @stopped || Process.ppid != @parent || !@closes_early
      end
    end
  end
end
