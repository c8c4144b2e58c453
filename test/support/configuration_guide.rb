# frozen_string_literal: true

require "penstock"

# Writes the tables of docs/configuration.md from the declarations of settings and their comments. The text around them is
# written by hand. `rake docs:configuration` writes the page, and a test compares it.
class ConfigurationGuide
  ROOT = File.expand_path("../..", __dir__)
  PAGE = File.join(ROOT, "docs/configuration.md")
  WIDTH = 130
  # A table's cell is at most a line and a half long. The sentences that do not fit follow below the table.
  CELL = 195

  SECTIONS = { "producer" => Penstock::Config, "consumer" => Penstock::ConsumerConfig, "admin" => Penstock::AdminConfig }.freeze
  FILES = %w[producer/config.rb consumer/config.rb admin/config.rb config/oauth.rb].to_h do |file|
    [file, File.join(ROOT, "lib/penstock", file)]
  end.freeze

  PART = /^(?<begin><!-- (?<name>\S+): rake docs:configuration writes this part -->\n).*?^(?<end><!-- end -->\n)/m
  DECLARATION = /^ +(?:setting|group) :(?<name>\w+)\b/
  HEADING = /^ +# ---- (?<title>.+) ----$/

  # A comment: the heading above it, its text without tags, and its place in the file.
  Comment = Struct.new(:heading, :lines, :line)

  # A setting as the guide shows it.
  Entry = Struct.new(:name, :setting, :heading, :lines, keyword_init: true)

  # @param page [String] its text, with the tables of any earlier state
  # @return [String] the page with the tables of the present state
  def write(page)
    page.gsub(PART) { "#{$~[:begin]}\n#{part($~[:name])}\n\n#{$~[:end]}" }
  end

  # @param client [String] "producer", "consumer" or "admin"
  # @return [Array<Entry>] all settings, in the order of the file
  def entries(client)
    entries_of(SECTIONS.fetch(client), comments("#{client}/config.rb"))
  end

  # @return [Hash{Symbol => String}] the reasons that the code gives for KAFKA_DEFAULTS
  def reasons(client)
    text = File.read(FILES.fetch("#{client}/config.rb"))[/^    KAFKA_DEFAULTS = \{\n(.*?)^    \}/m, 1]
    text.scan(/^ +"?([\w.]+)"?: [^#\n]+# (.+)$/).to_h.transform_keys(&:to_sym)
  end

  # ---- what librdkafka says ----

  # @return [Array(String, String)] librdkafka's default and its range, as it prints them
  def self.librdkafka(name)
    lines = Penstock.const_get(:Native)::ProducerClient.setting_lines # a private constant
    row = lines.map { |line| line.split("|").map(&:strip) }.find { |columns| columns[0] == name.to_s }
    [row[3], row[2]]
  end

  private

  def part(name) = name == "kafka-defaults" ? kafka_defaults : settings(name)

  # ---- what the code says ----

  def entries_of(section, comments, prefix: "", heading: nil)
    own = section.send(:settings).map { |setting| [setting.name, setting] } + section.send(:groups).to_a
    own.sort_by { |name, _| comments.fetch(name).line }.flat_map do |name, declared|
      comment = comments[name]
      here = heading || comment.heading
      path = "#{prefix}#{name}"
      next Entry.new(name: path, setting: declared, heading: here, lines: comment.lines) unless declared.is_a?(Class)

      of_group = declared == Penstock::OAuth ? comments("config/oauth.rb") : comments
      entries_of(declared, of_group, prefix: "#{path}.", heading: here)
    end
  end

  # @return [Hash{Symbol => Comment}] by the name of the setting
  def comments(file)
    heading = nil
    above = []
    File.readlines(FILES.fetch(file), chomp: true).each_with_index.with_object({}) do |(line, number), found|
      if (title = line[HEADING, :title]) then heading = title
      elsif line.match?(/^ +#/) then above << line.sub(/^ +# ?/, "")
      else
        name = line[DECLARATION, :name]
        raise "#{file} declares #{name} twice" if name && found.key?(name.to_sym)

        found[name.to_sym] = Comment.new(heading, above.grep_v(/\A@/), number) if name
        above = []
      end
    end
  end

  # ---- tables ----

  def settings(client)
    entries(client).group_by(&:heading).map { |heading, listed| "### #{heading}\n\n#{table(listed)}" }.join("\n\n")
  end

  def table(listed)
    notes = []
    rows = listed.map do |entry|
      cell, rest = shortened(blocks(entry.lines))
      notes << note(entry.name, rest) unless rest.empty?
      "| `#{entry.name}` | #{type(entry.setting)} | #{default(entry.setting)} | #{allowed(entry.setting)} | #{cell} |"
    end
    [["| setting | type | default | allowed | effect |", "|---|---|---|---|---|", *rows].join("\n"), *notes].join("\n\n")
  end

  def type(setting)
    types = setting.values.types.map { |type| type.match?(/[#<]/) ? "`#{type}`" : type }
    [types.join(" or "), setting.values.unit].compact.join(", ")
  end

  def default(setting)
    return "generated" if setting.default.nil? && !setting.values.types.include?("nil")

    "`#{setting.default.inspect.then { |text| grouped(text) }}`"
  end

  def allowed(setting)
    return if setting.values.types == %w[Boolean]

    grouped(setting.values.range.to_s).gsub(/(?<=\A|, ):\w+/) { |symbol| "`#{symbol}`" }
  end

  # 30_000 in place of 30000.
  def grouped(text) = text.gsub(/\d{4,}/) { |digits| digits.gsub(/(?<=\d)(?=(?:\d{3})+\z)/, "_") }

  def kafka_defaults
    names = SECTIONS.transform_values { |section| section::KAFKA_DEFAULTS }
    rows = names.values.flat_map(&:keys).uniq.map do |name|
      takers = names.keys.select { |client| names[client].key?(name) }
      value = grouped(names[takers.first][name].to_s)
      "| `#{name}` | #{takers.join(", ")} | `#{value}` | #{own_default(name)} | #{reasons(takers.first).fetch(name)} |"
    end
    ["| Kafka setting | client | Penstock's default | librdkafka's | reason |", "|---|---|---|---|---|", *rows].join("\n")
  end

  # Newer versions of librdkafka have another default.
  CHANGED = { "socket.nagle.disable": "`false` in 2.0.2, `true` in 2.14.2" }.freeze

  def own_default(name) = CHANGED.fetch(name) { "`#{grouped(ConfigurationGuide.librdkafka(name).first)}`" }

  # ---- text ----

  # @return [Array<String>] paragraphs, each in one line; lists and code have several
  def blocks(lines)
    chunks = lines.chunk_while do |before, after|
      list_begins = after.start_with?("- ") && !before.start_with?("- ", "  ")
      !before.empty? && !after.empty? && !list_begins
    end
    chunks.map { |chunk| chunk.reject(&:empty?) }.reject(&:empty?).map { |chunk| block(chunk) }
  end

  def block(lines)
    return lines.join("\n") if lines.first.start_with?("    ") # code
    return linked(lines.join("\n").gsub(/\n  (?=\S)/, " ")) if lines.first.start_with?("- ")

    linked(lines.join(" "))
  end

  # {Producer#metrics} becomes `Producer#metrics`, docs/waiting.md a link.
  def linked(text)
    text.gsub(/\{#?([^}]+)\}/, '`\1`').gsub(%r{\bdocs/([\w-]+\.md)}, '[\1](\1)')
  end

  # @return [Array(String, Array<String>)] what fits into a cell, and the rest
  def shortened(blocks)
    first, *others = blocks
    sentences = first.split(/(?<=\.)\s+/)
    fitting = sentences.each_index.take_while { |i| sentences[0..i].join(" ").size <= CELL }.size.clamp(1..)
    rest = [sentences.drop(fitting).join(" "), *others].reject(&:empty?)
    [sentences.take(fitting).join(" ").sub(/:\z/, ".").gsub("|", "\\|"), rest]
  end

  # The paragraphs that do not fit into the table, the first with the setting's name.
  def note(name, blocks)
    first, *others = blocks
    named = first.match?(/\A(?:- |    )/) ? ["**`#{name}`**:", first] : ["**`#{name}`**: #{first}"]
    [*named, *others].map { |text| wrapped(text) }.join("\n\n")
  end

  def wrapped(text)
    return text if text.start_with?("    ") # code

    text.lines(chomp: true).map do |line|
      indent = line.start_with?("- ") ? "  " : ""
      line.gsub(/(.{1,#{WIDTH - indent.size}})(?:\s+|\z)/, "\\1\n").strip.gsub("\n", "\n#{indent}")
    end.join("\n")
  end
end

if $PROGRAM_NAME == __FILE__
  page = File.read(ConfigurationGuide::PAGE)
  File.write(ConfigurationGuide::PAGE, ConfigurationGuide.new.write(page))
end
