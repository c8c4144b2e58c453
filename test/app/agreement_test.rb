# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/app_test_case"
require "penstock/testing"

# What a test on the driver shows is so with threads and brokers, too: the same applications with the same messages end alike.
class AppAgreementTest < AppTestCase
  slow(/./)

  KEYS = 5
  MESSAGES = 60
  FAST = { from: 0.01, to: 0.05 }.freeze

  # Fails, skips and sends by the numbers of messages: each number always does the same.
  module Acts
    def act(message)
      number = Integer(message.payload)
      raise ArgumentError, "never" if (number % 11).zero?
      raise "at first" if (number % 7).zero? && attempt < 3

      case number % 13
      when 5 then skip("unlucky")
      when 6 then reject("poison")
      when 7 then copy_to("#{topic}-copies")
      when 8 then retry_in(0.01) if attempt == 1
      end
    end
  end

  def single(finished)
    Class.new(Penstock::Processor) do
      include Acts
      define_method(:process) do |message|
        act(message)
        finished << [message.key, message.payload]
      end
    end
  end

  # Fails at first in the middle.
  def batches(finished)
    Class.new(Penstock::Processor) do
      define_method(:process_batch) do |batch|
        batch.each do |message|
          raise ArgumentError, "never" if (Integer(message.payload) % 11).zero?

          finished << [message.key, message.payload]
          batch.done(message)
        end
      end
    end
  end

  SCENARIOS = { "order_partition" => { order: :partition }, "order_key" => { order: :key },
                "order_unordered" => { order: :unordered }, "few_in_flight" => { order: :key, in_flight: 3 },
                "filter" => { order: :key, filter: ->(message) { Integer(message.payload) % 5 != 1 } },
                "throttle" => { order: :key, throttle: { messages: 50, per: 0.5, over: :topic } },
                "skipped_in_the_end" => { order: :partition, dead_letter: nil, after_retries: :skip },
                "retry_topics" => { order: :unordered, retry: { topics: [0.1, 0.2] } },
                "batches" => { batch: { size: 8, wait: 0.05 } },
                "batches_without_order" => { order: :unordered, batch: { size: 8, wait: 0.05 } } }.freeze

  SCENARIOS.each do |name, options|
    define_method("test_driver_and_threads_agree_#{name}") do
      source = topic(partitions: 1)
      %w[dead copies].each { |more| cluster.create_topic("#{source}-#{more}", partitions: 1) }
      [0.1, 0.2].each { |delay| cluster.create_topic("#{source}.#{@group}.retry.#{delay}s", partitions: 1) }
      driven = outcome { |finished| on_driver(source, finished, options) }
      real = outcome { |finished| on_threads(source, finished, options) }
      order = options.fetch(:order, :partition)
      assert_equal comparable(driven, order), comparable(real, order)
      assert_equal MESSAGES, real[:committed]
    end
  end

  def outcome
    finished = Thread::Queue.new
    found = yield finished
    { **found, finished: Array.new(finished.size) { finished.pop } }
  end

  # What must be the same: everything but the order of different lanes.
  def comparable(found, order)
    lanes = found[:finished].group_by { |key,| order == :partition ? nil : key }
    lanes = lanes.transform_values(&:sort) if order == :unordered
    { lanes:, committed: found[:committed], dead: found[:dead].sort, copies: found[:copies].sort }
  end

  def application(source, finished, options)
    made = options[:batch] ? batches(finished) : single(finished)
    app(source, made, order: :partition, retry: { times: 3, **FAST }, dead_letter: "#{source}-dead", **options)
  end

  def messages(source) = Array.new(MESSAGES) { |i| { topic: source, partition: 0, key: "k#{i % KEYS}", payload: i.to_s } }

  def on_driver(source, finished, options)
    driver = Penstock::Testing.drive(application(source, finished, options), seed: 3)
    messages(source).each { |message| driver.produce(message[:topic], **message.except(:topic)) }
    driver.advance(60)
    { committed: driver.committed(@group, source), dead: dead(driver.produced("#{source}-dead")),
      copies: driver.produced("#{source}-copies").map { |copy| copy[:payload] } }
  end

  def on_threads(source, finished, options)
    producer.produce_many_sync(messages(source))
    server = application(source, finished, options).start
    @servers << server
    names = [source, *[0.1, 0.2].map { |delay| "#{source}.#{@group}.retry.#{delay}s" }]
    eventually(60) { committed_offset(source) == MESSAGES && names.all? { |name| finished?(name) } }
    assert_predicate server.stop, :complete?
    read = ->(name) { Penstock.read(name, "bootstrap.servers": cluster.bootstrap_servers).to_a }
    letters = read.call("#{source}-dead").map { |copy| { payload: copy.payload, headers: copy.headers } }
    { committed: committed_offset(source), dead: dead(letters), copies: read.call("#{source}-copies").map(&:payload) }
  end

  # Retry topics, too, if the application has them.
  def finished?(name)
    (committed_offset(name) || 0) == Penstock.read(name, "bootstrap.servers": cluster.bootstrap_servers).count
  end

  def dead(letters)
    letters.map do |letter|
      [letter[:payload], *letter[:headers].values_at("source_offset", "source_attempts", "error_class", "error_kind")]
    end
  end
end
