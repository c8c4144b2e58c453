# frozen_string_literal: true

# What the comments in lib/ say of public methods.
module DocumentedMethods
  LIB = File.expand_path("../../lib/penstock", __dir__)

  # Whose methods a file has. A connection pool's waiting is the gem's, and its own tests see to it.
  FILES = {
    "producer.rb" => "Producer", "delivery_handle.rb" => "DeliveryHandle", "consumer.rb" => "Consumer",
    "producer/dispatch.rb" => "Producer", "producer/buffering.rb" => "Producer", "producer/transactions.rb" => "Producer",
    "producer/closing.rb" => "Producer"
  }.freeze

  BLOCKS = /^\s*#.*\bBlocks(?::| like)/.freeze
  NEVER = /Blocks: (?:never|no;)/.freeze

  # @return [Array<String>] such as "Producer#close"
  def self.blocking
    own = FILES.flat_map { |file, type| blocking_in(File.read(File.join(LIB, file)), type) }
    own |= own.select { |name| name.end_with?("#close") && name.start_with?("Producer") }.map { |name| "#{name}!" }
    own + variants(own)
  end

  # @param code [String] of a file
  # @param type [String] whose methods these are
  def self.blocking_in(code, type)
    code.split(/^\s*$/).flat_map { |part| part.scan(/((?:^\s*#.*\n)+)(?:\s*def ((?:self\.)?[\w?!]+))?/) }.filter_map do |comment, name|
      name ||= comment[/@!method ((?:self\.)?[\w?!]+)/, 1]
      next if name.nil? || !comment.match?(BLOCKS) || comment.match?(NEVER)

      "#{type}#{name.start_with?("self.") ? name.delete_prefix("self") : "##{name}"}"
    end
  end

  # A variant has the producer's methods that send.
  def self.variants(names)
    own = Penstock::Producer::Variant.public_instance_methods(false)
    names.filter_map { |name| name.sub("Producer", "Variant") if name.start_with?("Producer#") && own.include?(name[9..].to_sym) }
  end
  private_class_method :variants
end
