# frozen_string_literal: true

require "json"
require "rbconfig"
require "tempfile"
require_relative "../limited"
require_relative "catalogue"

class HostileBroker
  # A child process with client.rb, and the expectations about it. One thread uses it at a time.
  class Victim
    PROGRAM = File.expand_path("client.rb", __dir__)
    LIBRARIES = [ENV.fetch("PENSTOCK_INSTRUMENTED", nil), File.expand_path("../../../lib", __dir__)].compact.freeze
    PATIENCE = 30 # seconds. The longest client takes some 5
    TRIES = 3
    ENDING = 10 # seconds, for a child that has closed its output
    SECONDS = { produce: 8, produce_idempotently: 8, produce_sasl: 8, transact: 12, assign: 7, subscribe: 8, examine: 14 }.freeze
    ADMIN_SECONDS = 6 # an admin client's
    CLOSING = 2.1 # seconds: a tenth and a second longer than the client's timeout of 1 s
    # Memory limits, so that a bomb ends the child and not the machine. A sanitizer reserves more memory and grows differently.
    INSTRUMENTED = ENV.key?("PENSTOCK_INSTRUMENTED")
    LIMITS = (INSTRUMENTED ? {} : { rlimit_as: 16 << 30 }).freeze
    GROWTH = INSTRUMENTED ? 5 : 1 # times as much

    attr_reader :pid, # of the child
                :ran, # orders that it has had
                :kept_mb, # resident memory of the child
                :counts # of the latest broker: HostileBroker#counts

    # @param slack [Numeric] how many times longer the client may take on a busy machine
    def initialize(slack: 1)
      @slack = slack
      @ran = 0
    end

    # Repeats the attack if the client did not send the attacked request, for example on a machine too busy for its timeouts.
    #
    # @param attack [Attack] or an object with its interface
    # @return [Array<String>] the problems that the client's report shows
    def suffer(attack)
      found = []
      TRIES.times do
        found = suffer_once(attack)
        break if died? || missed(attack).empty?
      end
      found
    end

    # @return [Hash, String] the client's report, or how the client ended
    def report(attack, broker)
      ask(JSON.generate(what: attack.client, server: broker.address, settings: attack.settings, seconds: attack.seconds))
    end

    # @return [Boolean] whether the latest attack ended the client
    def died? = @died

    # @param report [Hash, String] the client's report, or how the client ended
    # @return [Array<String>]
    def problems(attack, report)
      return [report] if report.is_a?(String)

      [
        *report[:foreign].map { |error| "an error that is not Penstock's: #{error}" },
        *report[:unclean].map { |text| "a text that is not clean: #{text}" },
        *miscounted(report), *late(attack, report), *grown(attack, report), *missed(attack)
      ].compact
    end

    def close
      return unless @pid

      @orders.close
      trouble = Limited.wait(Process.detach(@pid), PATIENCE) and raise "the client #{trouble}"
    ensure
      forget_child
    end

    private

    def start
      input, @orders = IO.pipe
      @results, output = IO.pipe
      @errors = Tempfile.new("hostile-broker-client")
      command = [RbConfig.ruby, "-w", *LIBRARIES.flat_map { |path| ["-I", path] }, PROGRAM]
      @pid = Process.spawn(*command, in: input, out: output, err: @errors.path, rlimit_core: 0, **LIMITS)
      [input, output].each(&:close)
    end

    # @return [Hash, String] the client's report, or how it ended
    def ask(order)
      @died = false
      start unless @pid
      @orders.puts(order)
      @ran += 1
      line = @results.gets if @results.wait_readable(PATIENCE)
      line ? JSON.parse(line, symbolize_names: true).tap { |report| @kept_mb = report[:kept_kb] / 1024 } : end_of_child
    rescue Errno::EPIPE
      end_of_child
    end

    # @return [String]
    def end_of_child
      process = Process.detach(@pid) # only now, because it takes a thread
      hung = Limited.wait(process, ENDING)
      @died = !hung && !process.value.success? # a sanitizer ends the process without a signal
      "#{hung ? "hung: #{hung}" : "died, #{process.value}"}\n#{File.read(@errors.path)[0, 3_000]}"
    ensure
      forget_child
    end

    def forget_child
      [@orders, @results].each { |pipe| pipe&.close }
      @errors&.close!
      @pid = @orders = @results = @errors = nil
      @ran = 0
    end

    def suffer_once(attack)
      broker = HostileBroker.new { |exchange| attack.call(exchange) }
      problems(attack, report(attack, broker)).map { |problem| "#{attack.name}: #{problem}" }
    ensure
      broker&.close
      @counts = broker&.counts
    end

    def missed(attack) = attack.optional? || attack.delivered.positive? ? [] : ["nothing was attacked"]

    def grown(attack, report)
      megabytes = report[:grown_kb] / 1024
      megabytes > attack.growth * GROWTH ? ["grew by #{megabytes} MB, over #{attack.growth * GROWTH}"] : []
    end

    def miscounted(report)
      accepted, settled, published = report.values_at(:accepted, :settled, :published)
      return [] if [settled, published] == [accepted, accepted]

      ["#{accepted} messages accepted, #{settled} have a result, #{published} results published"]
    end

    def late(attack, report)
      seconds, closing = report.values_at(:seconds, :closing)
      limit = SECONDS.fetch(attack.client, ADMIN_SECONDS) * @slack
      [
        ("took #{seconds.round(1)} s, over #{limit}" if seconds > limit),
        ("took #{closing.round(1)} s to close" if closing && closing > CLOSING * @slack)
      ]
    end
  end
end
