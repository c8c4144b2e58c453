# frozen_string_literal: true

# The constants that users cannot name, for tests: Internal::ProducerClient is Penstock::Native::ProducerClient,
# Internal::Settings is Penstock::Settings, and Internal::Lane is Penstock::App::Lane. In any Ractor.
module Internal
  def self.const_missing(name)
    rooms = [Penstock.const_get(:Native), Penstock]
    rooms << Penstock.const_get(:App) if Penstock.const_defined?(:App, false)
    owner = rooms.find { |room| room.const_defined?(name, false) }
    owner ? owner.const_get(name, false) : super
  end

  # @param object [Penstock::Producer, Penstock::Consumer, Penstock::Admin]
  # @return [Penstock::Producer::Internals, Penstock::Consumer::Internals, Penstock::Admin::Internals]
  def self.of(object) = object.instance_variable_get(:@internals)

  # @param object [Object] for example a producer
  # @return [Array<String>] inspect's text of each instance variable, and of the variables of the parts of a producer, consumer
  #   or admin client
  def self.inspected(object, seen = {}.compare_by_identity)
    return [] if seen[object]

    seen[object] = true
    object.instance_variables.flat_map do |name|
      value = object.instance_variable_get(name)
      [value.inspect, *(inspected(value, seen) if value.class.name.to_s.match?(/\APenstock::(Producer|Consumer|Admin)::/))]
    end
  end
end
