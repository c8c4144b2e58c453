# frozen_string_literal: true

# What the comments in lib/ document about public methods.
module DocumentedMethods
  LIB = File.expand_path("../../lib/penstock", __dir__)

  # The class that each file documents. The gem connection_pool implements a pool's waits, and tests them itself.
  FILES = { "producer.rb" => "Producer", "producer/delivery_handle.rb" => "DeliveryHandle", "consumer.rb" => "Consumer",
            "consumer/consumer_set.rb" => "ConsumerSet", "admin.rb" => "Admin",
            **Dir.glob("admin/*_calls.rb", base: LIB).sort.to_h { |file| [file, "Admin"] } }.freeze

  BLOCKS = /\bBlocks(?::| like)/
  # A method that only connects does not block once the client is connected.
  NEVER = /Blocks: (?:never|no[;.]|like a first use)/
  private_constant :FILES, :BLOCKS, :NEVER

  # @return [Array<String>] such as "Producer#close"
  def self.blocking
    own = FILES.flat_map { |file, type| blocking_in(File.read(File.join(LIB, file)), type) }
    own |= own.select { |name| name.end_with?("#close") && name.start_with?("Producer") }.map { |name| "#{name}!" }
    own + variants(own)
  end

  # @param type [String] such as "Consumer"
  # @return [Array<String>] public methods for programs that never wait, such as "Consumer#position"
  def self.instant(type)
    methods = Penstock.const_get(type).public_instance_methods.select do |name|
      Penstock.const_get(type).instance_method(name).owner.name.to_s.start_with?("Penstock")
    end
    methods.map { |name| "#{type}##{name}" } - blocking
  end

  # @param code [String] the text of a file
  # @param type [String] the class that the file documents
  def self.blocking_in(code, type)
    code.scan(/((?:^ *#.*\n)+)(?: *def ((?:self\.)?[\w?!]+))?/).flat_map do |comment, name|
      above, *others = comment.split(/(?=@!method)/)
      documented = [[name, above], *others.map { |text| [text[/@!method ((?:self\.)?[\w?!]+)/, 1], text] }]
      documented.select { |method, text| blocks?(method, text) }.map { |method, _| full_name(type, method) }
    end
  end

  def self.blocks?(method, text) = !method.nil? && text.match?(BLOCKS) && !text.match?(NEVER)
  def self.full_name(type, method) = method.start_with?("self.") ? "#{type}.#{method[5..]}" : "#{type}##{method}"
  private_class_method :blocks?, :full_name

  # A variant has the producer's sending methods.
  def self.variants(names)
    own = Penstock::Producer::Variant.public_instance_methods(false)
    names.filter_map { |name| name.sub("Producer", "Variant") if name.start_with?("Producer#") && own.include?(name[9..].to_sym) }
  end
  private_class_method :variants
end
