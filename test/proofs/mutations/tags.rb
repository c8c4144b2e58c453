# frozen_string_literal: true

# How a mutation finds the line that it changes: by a tag at the end of that line.
#
#   if (depth == limit) return false; /* M:unpack_frame_limit */
#   left.check_order # M:batch_order_checked
#
# A tag that does not fit there has a line of its own, above.
module Tags
  ROOT = File.expand_path("../../..", __dir__)
  SOURCES = "{ext,lib,test/ext}/**/*.{c,h,rb}"
  TAG = %r{ *(?:/\* M:(\w+) \*/|# M:(\w+)$)}

  # The file of a tag, relative to ROOT, and the index of its line.
  Place = Struct.new(:file, :index) do
    # @return [String] the file after the block's change of the tagged lines
    # @yieldparam code [String] these lines, without the tag and their indentation
    def change(count)
      lines = File.readlines(File.join(ROOT, file))
      first = lines[index].sub(TAG, "").strip.empty? ? index + 1 : index
      tagged = lines[first, count]
      indentation = tagged.first[/\A */]
      changed = yield tagged.map { |line| line.sub(TAG, "").delete_prefix(indentation) }.join.chomp
      lines[first, count] = changed.lines.map { |line| "#{indentation}#{line.chomp}\n" }
      lines.join
    end
  end

  # @return [Hash{Symbol => Array<Place>}] those of each tag; a tag should have one
  def self.all
    @all ||= Dir.glob(SOURCES, base: ROOT).sort.each_with_object(Hash.new { |tags, tag| tags[tag] = [] }) do |file, tags|
      File.foreach(File.join(ROOT, file)).with_index do |line, index|
        line.scan(TAG) { tags[Regexp.last_match(1)&.to_sym || Regexp.last_match(2).to_sym] << Place.new(file, index) }
      end
    end
  end

  def self.place(tag)
    places = all.fetch(tag, [])
    raise "the tag #{tag} occurs #{places.size} times#{" (#{places.map(&:file).join(", ")})" if places.any?}" unless places.one?

    places.first
  end
end
