# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/consumer_test_case"

# A program's subclass of Consumer may have methods of any names but those of the public methods: Consumer calls none of them.
class ConsumerSubclassTest < ConsumerTestCase
  include SharedCluster::ForGroups

  # Methods that Ruby itself calls, or that every object has.
  OF_EVERY_OBJECT = (Object.instance_methods + Object.private_instance_methods + Class.new(&:itself).new.public_methods).freeze

  # @return [Array<Symbol>] the names of all methods of the consumer's parts, its client, its configuration and what they include
  def self.internal_names
    parts = Penstock::Consumer.constants(false) # public ones
    hidden = Internal.of(Penstock::Consumer.new("bootstrap.servers": "127.0.0.1:1")).then do |internals|
      internals.instance_variables.map { |name| internals.instance_variable_get(name).class } << internals.class
    end
    types = [*hidden, *parts.map { |name| Penstock::Consumer.const_get(name) }.grep(Module), Internal::ConsumerClient,
             Internal::ConsumerPlaces, Penstock::Consumer].select { |type| type.name.to_s.start_with?("Penstock::") }
    names = types.flat_map do |type|
      type.instance_methods + type.private_instance_methods + type.singleton_methods(false)
    end
    names.uniq - OF_EVERY_OBJECT - Penstock::Consumer.public_instance_methods
  end

  NAMES = internal_names.freeze
  # Names that Consumer had in the past. A program may have them.
  FORMER = %i[finish now place starts resolve processing places json state notifier nothing call_commit].freeze

  # Its methods note that they were called.
  def subclass
    noted = @noted = []
    Class.new(Penstock::Consumer) do
      (NAMES | FORMER).each do |name|
        define_method(name) do |*, **|
          noted << name
          raise NotImplementedError, "Consumer called #{name} of its subclass"
        end
      end
    end
  end

  def made(group: "group-#{rand(2**32)}", **kafka)
    one = subclass.new("bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest",
                       "fetch.wait.max.ms": 10, "session.timeout.ms": 6_000, **kafka) do |config|
      yield config if block_given?
    end
    one.tap { @consumers << one }
  end

  def filled(count)
    topic(partitions: 1).tap { |name| produce(name, Array.new(count, &:to_s)) }
  end

  def teardown
    super
    assert_empty @noted.to_a
  end

  def test_the_parts_have_methods_of_their_own
    assert_operator NAMES.size, :>, 100
    assert_empty NAMES & Penstock::Consumer.public_instance_methods
    refute_empty NAMES & FORMER
  end

  # Records the partitions that a consumer gets, and chooses where they begin.
  class Listener
    attr_reader :seen

    def initialize = @seen = []

    def assigned(rebalance)
      rebalance.partitions.each { |topic, partitions| partitions.each { |n| rebalance.start_at(topic, n, :beginning) } }
      @seen << :assigned
    end

    def revoked(_rebalance) = @seen << :revoked
  end

  def test_a_subclass_with_methods_of_any_name_subscribes_polls_commits_and_closes
    name = filled(6)
    listener = Listener.new
    one = made do |config|
      config.rebalance_listener = listener
      config.stuck_after = 60_000
    end
    events = []
    %w[consumer.connected messages.polled offsets.committed consumer.closed].each do |event|
      one.monitor.subscribe(event) { |found| events << found.id }
    end
    assert_same one, one.subscribe(name)
    first = nil
    one.each(timeout: 1) { |message| break first = message if message }
    assert_equal "0", first.payload
    assert one.mark(first)
    refute one.revoked?(first)
    assert one.commit(first)
    assert_equal "1", take(one, 1).first.payload
    batch = one.poll_batch(max: 2, timeout: 10)
    assert one.rewind(batch)
    assert_equal batch.payloads, take(one, 2).map(&:payload)
    assert one.commit(async: true)
    assert_equal :kept, one.keep_alive { :kept }
    assert_equal [:stable, { name => [0] }], [one.membership.state, one.assignment]
    assert_kind_of Hash, one.as_json
    assert_match(/\A#<#<Class:.*> penstock-consumer-\w+ open>\z/, one.inspect)
    assert_operator one.metrics.messages, :>=, 4
    assert_nil one.statistics
    assert_predicate one.close, :complete?
    assert_predicate one, :closed?
    assert_equal %i[assigned revoked], listener.seen
    assert_equal %w[consumer.connected messages.polled offsets.committed consumer.closed], events.uniq
  end

  def test_a_subclass_with_methods_of_any_name_asks_for_offsets_and_changes_them
    name = filled(5)
    one = made
    one.assign(name => { 0 => [:last, 5] })
    assert_equal "0", take(one, 1).first.payload
    one.seek(name, 0, 3)
    assert_equal "3", take(one, 1).first.payload
    assert_equal 4, one.position(name, 0)
    assert_equal [0, 5], one.watermarks(name, 0)
    assert_equal({ name => { 0 => 1 } }, one.lag)
    one.pause
    assert_equal({ name => [0] }, one.paused)
    assert_empty one.resume
    assert_equal({ 0 => nil }, one.committed(name, 0))
    assert one.commit({ name => { 0 => 4 } })
    assert_equal({ 0 => 4 }, one.committed(name, 0))
    one.seek(name, 0, 2, commit: true)
    assert_equal({ 0 => 2 }, one.committed(name, 0))
    assert_equal({ 0 => nil }, one.offsets_for_times(name, 0, Time.now + 60)) unless SharedCluster.real?
    assert_kind_of String, one.group_metadata
    one.unsubscribe
    assert_raises(Penstock::ConfigurationInvalidError) { one.set_credentials("a", "b") }
  end

  def test_consumers_of_a_subclass_with_methods_of_any_name_work_in_a_set_and_in_a_transaction
    name = filled(4)
    one = made("enable.auto.commit": false)
    one.assign(name => { 0 => :beginning })
    set = Penstock::ConsumerSet.new(one)
    got = []
    set.each_batch(max: 2) do |_, batch|
      got.concat(batch.payloads)
      break if got.size >= 2
    end
    set.clear
    assert_equal %w[0 1], got.first(2)
    sender = producer("transactional.id": "tx-#{rand(2**32)}")
    one.seek(name, 0, 2)
    assert_equal %w[2 3], eventually { sender.transaction(one, timeout: 5, &:payloads) || nil }.payloads
  end

  def test_a_subclass_with_methods_of_any_name_works_with_a_client_of_a_test
    one = made { |config| config.client_class = Penstock::Clients::InMemoryConsumer }
    2.times { |i| one.client.feed(topic: "orders", payload: i.to_s) }
    one.subscribe("orders")
    assert_equal "0", one.poll.payload
    assert_equal ["1"], one.poll_batch.payloads
    assert one.commit
    assert_equal({ "orders" => { 0 => 2 } }, one.client.committed)
    one.client.close_at_end
    one.each { flunk }
    assert_predicate one, :closed?
  end

  def test_an_object_that_is_no_consumer_or_has_no_client_of_librdkafka_cannot_be_in_a_set
    replaced = made { |config| config.client_class = Penstock::Clients::InMemoryConsumer }
    set = Penstock::ConsumerSet.new
    assert_match(/expected Penstock::Consumer/, assert_raises(TypeError) { set.add(Object.new) }.message)
    assert_match(/config.client_class/, assert_raises(TypeError) { set.add(replaced) }.message)
  end
end
