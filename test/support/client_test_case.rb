# frozen_string_literal: true

# What the tests of the clients without delivery share.
class ClientTestCase < PenstockTest
  def setup
    super
    @monitor = Penstock::Monitor.new
  end

  def settings(**kafka)
    Penstock::Config.new.tap do |config|
      config.id = "dummy"
      config.kafka = { "bootstrap.servers": "127.0.0.1:1", **kafka }
      yield config if block_given?
      config.send(:finish)
    end
  end

  def client(**kafka, &block) = described.new(settings(**kafka, &block), @monitor)

  # A client in a transaction.
  def transactional(**kafka)
    client("transactional.id": "tx", **kafka).tap do |made|
      made.init_transactions(1_000)
      made.begin_transaction
    end
  end

  # @return [Array<Penstock::Event>] filled as the events are published
  def events(*names)
    [].tap { |seen| names.each { |name| @monitor.subscribe(name) { |event| seen << event } } }
  end
end
